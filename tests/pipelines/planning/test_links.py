from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.planning.links import LocalFiles


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(b"1")
    (folder / "deep" / "b").write_bytes(b"22")
    (tmp_path / "outside").write_bytes(b"333")
    (folder / "link").symlink_to("deep/b")
    (folder / "far").symlink_to(tmp_path / "outside")
    (folder / "folder").symlink_to("deep")
    (folder / "chain").symlink_to("link")
    (folder / "nowhere").symlink_to("none")
    (folder / "itself").symlink_to("itself")
    os.link(folder / "a", folder / "hard")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize(
    ("path", "real", "through_link"),
    [
        ("a", "a", False),
        ("deep/b", "deep/b", False),
        ("link", "deep/b", True),
        ("chain", "deep/b", True),
        ("folder/b", "deep/b", True),
        ("../base/a", "a", False),
        # Hard links are files of their own.
        ("hard", "hard", False),
    ],
)
def test_names_lead_to_the_files_own_place(base: Path, path: str, real: str, through_link: bool) -> None:
    (look,) = LocalFiles(str(base)).look([path])
    assert (look.real, look.through_link, look.problem) == (real, through_link, "")
    (absolute,) = LocalFiles(str(base)).look([str(base / path)])
    assert (absolute.real, absolute.glance) == (real, look.glance)


def test_files_outside_have_absolute_places(base: Path) -> None:
    outside = str(base.parent / "outside")
    looks = LocalFiles(str(base)).look(["../outside", "far", outside])
    assert [look.real for look in looks] == [outside] * 3
    assert [look.through_link for look in looks] == [False, True, False]
    assert {look.glance.size for look in looks} == {3}


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("none", "missing"),
        ("a/b", "missing"),
        ("none/b", "missing"),
        ("nowhere", "dangling"),
        ("itself", "dangling"),
        ("deep", "folder"),
        ("folder", "folder"),
        ("pipe", "special"),
    ],
)
def test_what_is_no_file_says_why(base: Path, path: str, problem: str) -> None:
    (look,) = LocalFiles(str(base)).look([path])
    assert (look.real, look.problem) == ("", problem)


def test_a_base_behind_a_link_is_the_same_base(base: Path) -> None:
    (base.parent / "alias").symlink_to("base")
    files = LocalFiles(str(base.parent / "alias"))
    looks = files.look(["a", str(base / "a"), str(base.parent / "alias" / "deep" / "b")])
    assert [look.real for look in looks] == ["a", "a", "deep/b"]
    assert not looks[0].through_link
