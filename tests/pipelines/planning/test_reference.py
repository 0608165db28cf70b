from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.planning.reference import reference_files
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from shards.errors import UserError


def test_reference_files_are_sorted_and_each_once(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text("text")
    (tmp_path / "folder.txt").mkdir()
    recipe = parse_recipe({"sources": [{"glob": "x"}]}, "t")
    workspace = Workspace.of(str(tmp_path / "out"), recipe, str(tmp_path))
    found = reference_files(workspace, ("*.txt", "a*", "c.md"), "here")
    assert found == [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.md")]
    with pytest.raises(UserError, match=r"'\*\.gone' matches no file"):
        reference_files(workspace, ("*.txt", "*.gone"), "here")
