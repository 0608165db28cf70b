from __future__ import annotations

import fnmatch
import uuid
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.planning.globs import _file_system, as_local, local_names, matches, remote_files, remote_glances
from shards.store import Store


def test_file_uris_are_local() -> None:
    assert as_local("file:///x/a%20b/*.jsonl") == "/x/a b/*.jsonl"
    assert as_local("a/*.jsonl") == "a/*.jsonl"
    assert as_local("s3://bucket/*.jsonl") is None


def test_a_local_glob_names_links_to_nothing_too(tmp_path: Path) -> None:
    (tmp_path / "a.x").symlink_to("none")
    (tmp_path / "b.x").write_bytes(b"")
    assert sorted(local_names("*.x", str(tmp_path))) == ["a.x", "b.x"]
    assert sorted(local_names("./*.x", str(tmp_path))) == ["a.x", "b.x"]


PARTS = st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=4)
WANTED = st.lists(st.sampled_from(["**", "*", "a", "a*", "?b", "[ab]"]), min_size=1, max_size=4)


@given(PARTS, WANTED)
def test_parts_match_as_an_expansion_of_every_double_star_would(parts: list[str], wanted: list[str]) -> None:
    def expansions(wanted: list[str]) -> list[list[str]]:
        if not wanted:
            return [[]]
        rests = expansions(wanted[1:])
        heads = [["*"] * n for n in range(len(parts) + 1)] if wanted[0] == "**" else [[wanted[0]]]
        return [head + rest for head in heads for rest in rests]

    def agrees(flat: list[str]) -> bool:
        return len(flat) == len(parts) and all(map(fnmatch.fnmatchcase, parts, flat))

    assert matches(parts, wanted) == any(agrees(flat) for flat in expansions(wanted))


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for an S3 bucket: pyarrow decodes the URI, and sees names as they are."""
    from urllib.parse import unquote

    def fake(uri: str) -> tuple[pafs.FileSystem, str]:
        assert uri.startswith("s3://bucket/"), uri
        return pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), unquote(uri.removeprefix("s3://bucket/"))

    monkeypatch.setattr("pipelines.planning.globs.file_system", fake)
    _file_system.cache_clear()
    for name in ("in put/a b.jsonl", "in put/żółć.jsonl", "in put/100%.jsonl", "in put/deep/c.jsonl", "x.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_names_in_a_bucket_become_uris_that_lead_back(bucket: Path) -> None:
    found = dict(remote_files("s3://bucket/in%20put/*.jsonl"))
    assert set(found) == {
        "s3://bucket/in%20put/a%20b.jsonl",
        "s3://bucket/in%20put/%C5%BC%C3%B3%C5%82%C4%87.jsonl",
        "s3://bucket/in%20put/100%25.jsonl",
    }
    assert remote_glances(list(found)) == list(found.values())
    assert set(dict(remote_files("s3://bucket/in put/a%20*.jsonl"))) == {"s3://bucket/in%20put/a%20b.jsonl"}
    assert remote_glances(["s3://bucket/none", "s3://bucket/deep"]) == [None, None]


def test_listed_uris_are_looked_at_by_file_system() -> None:
    root = f"memory://headrace-{uuid.uuid4().hex}"
    for name in ("a", "b c"):
        Store(root).write_bytes(name, name.encode())
    found = remote_glances([f"{root}/b c", f"{root}/none", f"{root}/a"])
    assert [glance and glance.size for glance in found] == [3, None, 1]
