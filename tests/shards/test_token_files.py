from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import IncompleteError, UserError
from shards.token_files import TokenFiles, safe_path

HEAD = b"ARROW1\0\0"
TOKENS = 40


def files_in(folder: Path, count: int) -> None:
    (folder / "d").mkdir()
    for number in range(count):
        values = np.arange(TOKENS, dtype=np.uint16) + 100 * number
        (folder / "d" / str(number)).write_bytes(HEAD + values.tobytes())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@given(jumps=st.lists(st.tuples(st.integers(0, 8), st.integers(0, TOKENS - 1)), max_size=80), limit=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_spans_are_the_same_whatever_is_mapped(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[tuple[int, int]], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("f")
    files_in(folder, 9)
    files = TokenFiles(folder, np.dtype(np.uint16), limit)
    before = descriptors()
    for number, first in jumps:
        out = np.full(5, -1, np.int64)
        count = min(3, TOKENS - first)
        spans = [(first, count, 1), (number, 1, 4)]
        files.copy(f"d/{number}", len(HEAD) + 2 * TOKENS, len(HEAD), spans, out)
        copied = [100 * number + first + i for i in range(count)] + [-1] * (3 - count)
        assert out.tolist() == [-1, *copied, 101 * number]
        assert files.mapped <= limit
        assert descriptors() <= before + limit
    assert files.mapped == min(limit, len({number for number, _ in jumps}))


def test_a_window_that_moves_on_is_mapped_after_a_while(tmp_path: Path) -> None:
    files_in(tmp_path, 8)
    files = TokenFiles(tmp_path, np.dtype(np.uint16), 4)
    out = np.zeros(1, np.int64)
    for window in (range(4), range(4, 8)):
        for _ in range(80):
            for number in window:
                files.copy(f"d/{number}", len(HEAD) + 2 * TOKENS, len(HEAD), [(0, 1, 0)], out)
        assert set(files._mapped) == {f"d/{number}" for number in window}


def test_a_file_that_is_not_as_listed_is_not_read(tmp_path: Path) -> None:
    files_in(tmp_path, 1)
    size, out = len(HEAD) + 2 * TOKENS, np.zeros(1, np.int64)
    before = descriptors()
    with pytest.raises(IncompleteError, match="shard 0 has 88 bytes, not 87"):
        TokenFiles(tmp_path, np.dtype(np.uint16), 1).copy("d/0", size - 1, len(HEAD), [(0, 1, 0)], out)
    (tmp_path / "d" / "0").write_bytes(bytes(size))
    with pytest.raises(IncompleteError, match="is not an Arrow file"):
        TokenFiles(tmp_path, np.dtype(np.uint16), 1).copy("d/0", size, len(HEAD), [(0, 1, 0)], out)
    with pytest.raises(IncompleteError, match="shard 1 is missing"):
        TokenFiles(tmp_path, np.dtype(np.uint16), 1).copy("d/1", size, len(HEAD), [(0, 1, 0)], out)
    assert descriptors() == before


@pytest.mark.parametrize("name", ["../x.arrow", "/etc/passwd", "a/../../x", "", "a\0b", "d/..", "d/../../x"])
def test_paths_never_leave_the_folder(tmp_path: Path, name: str) -> None:
    files_in(tmp_path, 1)
    with pytest.raises(UserError, match="outside its folder"):
        TokenFiles(tmp_path, np.dtype(np.uint16), 1).copy(name, 1, 0, [], np.zeros(1))
    if name != "d/..":
        with pytest.raises(UserError, match="outside its folder"):
            safe_path(tmp_path, name)


def test_links_are_followed_inside_the_folder_only(tmp_path: Path) -> None:
    inside, out = tmp_path / "in", np.zeros(1, np.int64)
    inside.mkdir()
    files_in(inside, 1)
    size = len(HEAD) + 2 * TOKENS
    (inside / "near").symlink_to(inside / "d" / "0")
    (inside / "folder").symlink_to(tmp_path)
    (tmp_path / "far").write_bytes(HEAD + bytes(2 * TOKENS))
    (inside / "far").symlink_to(tmp_path / "far")
    files = TokenFiles(inside, np.dtype(np.uint16), 1)
    files.copy("near", size, len(HEAD), [(3, 1, 0)], out)
    assert out.tolist() == [3]
    for name in ("far", "folder/far"):
        with pytest.raises(UserError, match="outside its folder"):
            files.copy(name, size, len(HEAD), [(3, 1, 0)], out)
