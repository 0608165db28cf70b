from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.beam.base import Inputs
from pipelines.beam.runners import LocalRunner
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.workspace import Workspace
from shards.manifest import PassFolder
from tests.integration.killed_units import UNITS, Marking
from tests.pipelines.beam.killers import DEATHS

pytestmark = pytest.mark.integration

REASONS = {"!raise": "stage_error", "!panic": "stage_error", "12": "digit", "ab": "short"}


def test_units_whose_documents_kill_are_done_by_the_same_run(tmp_path: Path) -> None:
    workspace = Workspace.of(str(tmp_path), parse_recipe({"sources": [{"glob": "*"}]}, "t"), str(tmp_path))
    workspace.take_over("key")
    run, work = Run(workspace, "key"), Marking()
    with LocalRunner(2) as runner:
        runner.run(work, run.job(work.name, "digest"), Inputs(run, ()), list(UNITS), lambda: None)
    folder = PassFolder(run.store, work.name, "digest")
    folder.finish(list(UNITS))
    for marker in folder.manifest().markers():
        texts, rows = UNITS[marker.unit], json.loads(run.store.read_named(marker.files["rows"].path))
        assert [row["text"] for row in rows] == texts
        assert [row["reason"] for row in rows] == [
            "killed_process" if text in DEATHS else REASONS.get(text) for text in texts
        ]
        assert [row["detail"] for row in rows if row["text"] in DEATHS] == [DEATHS[t] for t in texts if t in DEATHS]
    assert run.store.list(f"unfinished/{work.name}") == []
