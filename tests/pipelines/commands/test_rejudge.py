from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.rejudge import rejudge
from pipelines.driver import DIGESTS_FILE
from pipelines.workspace import Workspace
from shards.errors import UserError

LIMIT = "perplexity_v1.max_perplexity.percentile"


def test_a_dry_run_writes_nothing(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    rejudge(str(copied), [f"{LIMIT}=50"], workers=1, dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before
    assert "Nothing was written" in capsys.readouterr().out


def test_what_moved_is_said_and_the_recipe_is_the_runs(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rejudge(str(copied), [f"{LIMIT}=50"], workers=1, as_json=True)
    moved = json.loads(capsys.readouterr().out)
    chaotic = [row for row in moved if row["reason"] == "too_chaotic"]
    assert sum(row["after"] for row in chaotic) > 5 * sum(row["before"] for row in chaotic)
    assert sum(row["after"] - row["before"] for row in moved) == 0
    use = Workspace.open(str(copied)).recipe.stages[1]
    assert use.parameters["max_perplexity"]["percentile"] == 50.0
    assert not (copied / DIGESTS_FILE).exists(), "what follows is stale until 'headrace run'"
    rejudge(str(copied), [f"{LIMIT}=50"], workers=1)
    said = capsys.readouterr().out
    assert "nothing moved" in said
    assert f"headrace run {copied}" in said.replace("\n", "")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run is here"):
        rejudge(str(tmp_path), [f"{LIMIT}=50"])


def test_an_unfinished_judge_pass_is_refused(copied: Path, made: Any) -> None:
    (copied / DIGESTS_FILE).unlink()
    (copied / "plan" / "run.json").unlink()
    with pytest.raises(UserError, match="not finished"):
        rejudge(str(copied), [f"{LIMIT}=50"])
