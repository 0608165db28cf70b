from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.planning.lists import MAX_LINE_BYTES, listed
from shards.errors import UserError

NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"), min_size=1)


def packed(data: bytes, how: str) -> bytes:
    if how == "gzip":
        # Of two members, as list files that were put together are.
        return gzip.compress(data[:7]) + gzip.compress(data[7:])
    if how == "zstd":
        return zstandard.compress(data[:7]) + zstandard.compress(data[7:])
    return data


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(NAMES, max_size=6),
    ends=st.sampled_from(["\n", "\r\n", "\n\n"]),
    last=st.booleans(),
    how=st.sampled_from(["plain", "gzip", "zstd"]),
)
def test_every_line_is_a_path(tmp_path: Path, names: list[str], ends: str, last: bool, how: str) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(packed((ends.join(names) + (ends if last else "")).encode(), how))
    step = ends.count("\n")
    expected = [(1 + step * number, name) for number, name in enumerate(names)]
    if names and names[0].startswith("\ufeff"):
        expected[0] = (1, names[0][1:])
    assert list(listed(str(path), "list.txt")) == [(number, name) for number, name in expected if name]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes("\ufeffa\n#b \n".encode())
    # There are no comments, and blanks are part of a name.
    assert list(listed(str(tmp_path / "l"), "l")) == [(1, "a"), (2, "#b ")]


@pytest.mark.parametrize(
    ("data", "what", "place"),
    [
        (b"a\nb\xff\n", "the line is not UTF-8", "l, line 2"),
        (b"a\n" + b"b" * (MAX_LINE_BYTES + 1), "longer than", "l, line 2"),
    ],
)
def test_what_is_no_list_names_its_line(tmp_path: Path, data: bytes, what: str, place: str) -> None:
    (tmp_path / "l").write_bytes(data)
    with pytest.raises(UserError, match=what) as caught:
        list(listed(str(tmp_path / "l"), "l"))
    assert caught.value.place.startswith(place)


@pytest.mark.parametrize("how", ["gzip", "zstd"])
@pytest.mark.parametrize("cut", [1, 3, 200])
def test_a_list_that_was_cut_is_no_shorter_list(tmp_path: Path, how: str, cut: int) -> None:
    names = "".join(f"{number**5}\n" for number in range(1_000))
    (tmp_path / "l").write_bytes(packed(names.encode(), how)[:-cut])
    with pytest.raises(UserError, match=r"the list 'l' cannot be read after line .*runcated"):
        list(listed(str(tmp_path / "l"), "l"))


def test_a_missing_list_is_the_users_to_fix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the list 'l' is missing") as caught:
        list(listed(str(tmp_path / "l"), "l"))
    assert caught.value.place == str(tmp_path / "l")


def test_a_long_list_is_never_held(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(gzip.compress(b"crawl/segment/warc/some-name-of-a-file.warc.gz\n" * 100_000))
    tracemalloc.start()
    assert sum(1 for _ in listed(str(tmp_path / "l"), "l")) == 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20
