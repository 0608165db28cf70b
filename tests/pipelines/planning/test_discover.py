from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.planning.discover import Finds, discover
from pipelines.recipe import parse_recipe
from shards.errors import UserError
from shards.store import Store


def find(base: Path, *sources: Any, known: tuple[str, ...] = (), **keys: Any) -> Finds:
    tables = [{"glob": source} if isinstance(source, str) else source for source in sources]
    return discover(parse_recipe({"sources": tables, **keys}, "t"), str(base), pa.array(known, pa.string()))


def fill(base: Path, *names: str) -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(name.encode())


def test_files_come_sorted_with_what_the_file_system_says(tmp_path: Path) -> None:
    fill(tmp_path, "b", "a", "deep/c")
    found = find(tmp_path, "b", "**/*")
    assert found.paths == ["a", "b", "deep/c"]
    assert found.settings.tolist() == [1, 0, 1]
    assert found.glances[:, 0].tolist() == [1, 1, 6]
    assert found.glances[0, 1] == (tmp_path / "a").stat().st_mtime_ns
    assert found.left_out == {}


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "a.x")
    (tmp_path / "b.x").symlink_to("none")
    (tmp_path / "c.x").symlink_to("c.x")
    (tmp_path / "d.x").mkdir()
    os.mkfifo(tmp_path / "e.x")
    found = find(tmp_path, "*.x")
    assert found.paths == ["a.x"]
    assert found.left_out == {"b.x": "dangling", "c.x": "dangling", "e.x": "special"}
    with pytest.raises(UserError, match=r"'b\*' matches no file, only 1 that cannot be read"):
        find(tmp_path, "b*")


def test_a_file_under_two_names_is_read_once(tmp_path: Path) -> None:
    fill(tmp_path, "z.x", "deep/y.x")
    (tmp_path / "a.x").symlink_to("z.x")
    (tmp_path / "b").symlink_to("deep")
    found = find(tmp_path, "**/*.x")
    # Its own name is kept: a link may lead elsewhere tomorrow.
    assert found.paths == ["deep/y.x", "z.x"]
    assert found.left_out == {"a.x": "same_file", "b/y.x": "same_file"}
    assert find(tmp_path, "*.x", "deep/*").paths == found.paths
    assert find(tmp_path, "a.x").paths == ["a.x"]


def test_a_file_is_of_the_first_table_that_names_it_and_under_that_name(tmp_path: Path) -> None:
    fill(tmp_path, "pool/1.x", "pool/2.x")
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "1.x").symlink_to("../pool/1.x")
    found = find(tmp_path, "good/*", "pool/*")
    assert list(zip(found.paths, found.settings.tolist(), strict=True)) == [("good/1.x", 0), ("pool/2.x", 1)]
    turned = find(tmp_path, "pool/*", "good/*")
    assert list(zip(turned.paths, turned.settings.tolist(), strict=True)) == [("pool/1.x", 0), ("pool/2.x", 0)]


def test_a_name_that_the_folder_knows_is_kept(tmp_path: Path) -> None:
    fill(tmp_path, "z.x")
    (tmp_path / "a.x").symlink_to("z.x")
    assert find(tmp_path, "*.x", known=("a.x",)).paths == ["a.x"]
    both = find(tmp_path, "*.x", known=("a.x", "z.x"))
    assert (both.paths, both.left_out) == (["a.x", "z.x"], {})
    assert both.glances[0].tolist() == both.glances[1].tolist()


def test_hard_links_are_files_of_their_own(tmp_path: Path) -> None:
    fill(tmp_path, "a.x")
    os.link(tmp_path / "a.x", tmp_path / "b.x")
    found = find(tmp_path, "*.x")
    assert (found.paths, found.left_out) == (["a.x", "b.x"], {})


def test_folders_that_lead_back_are_no_trap(tmp_path: Path) -> None:
    fill(tmp_path, "deep/a.x")
    (tmp_path / "deep" / "back").symlink_to("..")
    assert find(tmp_path, "**/*.x").paths == ["deep/a.x"]


@pytest.mark.parametrize("own", ["out", "link", "absolute"])
def test_what_the_run_itself_wrote_is_no_source(tmp_path: Path, own: str) -> None:
    fill(tmp_path, "a.x", "out/b.x", "outer/c.x")
    (tmp_path / "link").symlink_to("out")
    recipe = parse_recipe({"sources": [{"glob": "**/*.x"}]}, "t")
    folder = str(tmp_path / ("out" if own == "absolute" else own))
    assert discover(recipe, str(tmp_path), pa.array([], pa.string()), folder).paths == ["a.x", "outer/c.x"]
    assert find(tmp_path, "**/*.x").paths == ["a.x", "out/b.x", "outer/c.x"]


def test_what_the_run_itself_wrote_elsewhere_is_no_source_either(tmp_path: Path) -> None:
    root = f"memory://headrace-{uuid.uuid4().hex}"
    for name in ("a", "out/b"):
        Store(root).write_bytes(name, b"x")
    recipe = parse_recipe({"sources": [{"glob": f"{root}/**/*"}]}, "t")
    found = discover(recipe, str(tmp_path), pa.array([], pa.string()), f"{root}/out")
    assert found.paths == [f"{root}/a"]


def test_an_empty_list_is_the_users_to_fix(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    (tmp_path / "list.txt").write_text("\n\n")
    with pytest.raises(UserError, match=r"the list 'list\.txt' names no file"):
        find(tmp_path, {"list": "list.txt", "glob": "a"})


def test_lists_and_globs_together_name_each_file_once(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b", "deep/c", "lists/d")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_bytes(b"x")
    # Relative to the recipe's folder, wherever the list lies.
    (tmp_path / "lists" / "list.txt").write_text(f"deep/c\n./a\n{tmp_path}/b\n\na\n{outside}\n")
    found = find(tmp_path, {"list": "lists/list.txt", "glob": "a"}, {"list": [str(tmp_path / "lists/list.txt")]})
    assert found.paths == sorted(["a", f"{tmp_path}/b", "deep/c", str(outside)])
    assert set(found.settings.tolist()) == {0}
    outside.unlink()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("none", "is not there"),
        ("link", "is a link that leads nowhere"),
        ("folder", "is a folder"),
        ("pipe", "is not a regular file"),
        ("memory://nothing/here", "is not there"),
    ],
)
def test_a_listed_file_that_is_not_there_names_its_line(tmp_path: Path, line: str, problem: str) -> None:
    fill(tmp_path, "a", "b", "folder/c")
    (tmp_path / "link").symlink_to("none")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "list.txt").write_text(f"a\n\nb\n{line}\n")
    with pytest.raises(UserError, match=problem) as caught:
        find(tmp_path, {"list": "list.txt"})
    assert caught.value.place == f"list.txt, line 4, looked in {tmp_path}"
    if line in ("folder", "pipe"):
        with pytest.raises(UserError, match=problem):
            find(tmp_path, {"list": "list.txt"}, leave_out_missing=True)
    else:
        found = find(tmp_path, {"list": "list.txt"}, leave_out_missing=True)
        assert (found.paths, list(found.left_out)) == (["a", "b"], [line])


def test_a_control_character_in_a_list_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "a\x1b").write_bytes(b"x")
    (tmp_path / "list.txt").write_text("a\x1b\n")
    with pytest.raises(UserError, match="control characters") as caught:
        find(tmp_path, {"list": "list.txt"})
    assert caught.value.place == "list.txt, line 1"


def test_one_object_under_several_uris_is_read_once(tmp_path: Path) -> None:
    root = f"memory://headrace-{uuid.uuid4().hex}"
    fill(tmp_path, "here")
    for name in ("a", "b"):
        Store(root).write_bytes(f"deep/{name}", name.encode() * 5)
    spellings = [f"{root}/deep/a", f"{root}/deep/a/", root.replace("//", "///") + "/deep/a", "here", f"{root}/deep/b"]
    (tmp_path / "list.txt").write_text("\n".join(spellings))
    found = find(tmp_path, {"list": "list.txt", "glob": f"{root}/deep/*"})
    assert found.paths == sorted(["here", f"{root}/deep/a", f"{root}/deep/b"])
    assert found.glances[:, 0].tolist() == [4, 5, 5]
    assert found.left_out == {}


def test_a_list_longer_than_a_chunk_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.planning.discover._LIST_CHUNK", 3)
    names = [f"{number:02d}" for number in range(10)]
    fill(tmp_path, *names)
    (tmp_path / "list.txt").write_text("\n".join(reversed(names)))
    assert find(tmp_path, {"list": "list.txt"}).paths == names
