from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.plan import save_plan
from pipelines.planning.sources import SourceTable
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.workspace import RUN_FILE, Job, Workspace
from shards.errors import IncompleteError
from shards.manifest import PassFolder
from shards.sealed import read_sealed
from tests.pipelines.support import plan_of

UNITS = ("00000-a", "00001-b")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    workspace = Workspace.of(str(tmp_path), parse_recipe({"sources": [{"glob": "*"}]}, "t"), str(tmp_path))
    workspace.take_over("key")
    return Run(workspace, "key")


def finish(run: Run, name: str, digest: str) -> None:
    for unit in UNITS:
        entry = run.store.publish_bytes(f"{name} {unit}".encode(), f"{name}/keys", unit, ".arrow", 1)
        run.job(name, digest).commit(unit, {"keys": entry})
    PassFolder(run.store, name, digest).finish(UNITS)
    run.add(name, digest)


def test_a_run_knows_the_passes_that_are_finished(run: Run) -> None:
    assert not run.has("judge")
    with pytest.raises(IncompleteError, match="pass judge is not finished"):
        run.manifest("judge")
    finish(run, "judge", "d1")
    assert run.has("judge")
    assert run.manifest("judge").units == UNITS
    assert run.manifest("judge") is run.manifest("judge")
    files = run.files("judge", "keys")
    assert list(files) == list(UNITS)
    assert [run.store.read_bytes(entry.path) for entry in files.values()] == [b"judge 00000-a", b"judge 00001-b"]


def test_a_manifest_of_another_digest_is_not_this_runs(run: Run) -> None:
    finish(run, "judge", "d1")
    with pytest.raises(IncompleteError, match="not finished"):
        Run(run.workspace, "key", {"judge": "d2"}).manifest("judge")


def test_jobs_name_the_folder_the_run_and_the_pass(run: Run) -> None:
    assert run.job("judge", "d1") == Job(run.root, "key", "judge", "d1")


def test_progress_is_noted_for_those_who_look_into_the_run(run: Run) -> None:
    run.note_progress()
    run.add("judge", "d1")
    run.note_progress()
    assert read_sealed(run.store, RUN_FILE) == {"run": "key", "digests": {"judge": "d1"}}


def test_the_digests_given_are_not_changed(run: Run) -> None:
    digests = {"judge": "d1"}
    Run(run.workspace, "key", digests).add("drops", "d2")
    assert digests == {"judge": "d1"}


def test_documents_lead_to_their_splits(run: Run) -> None:
    plan = plan_of(5, run.recipe, per_split=2)
    save_plan(run.store, plan, SourceTable())
    assert run.plan == plan
    names = plan.splits.names
    ids = np.array([(2 << 32) + 5, (1 << 32) + 7, 3, (3 << 32) + 1], np.int64)
    assert run.splits_of(ids) == names[:2]
    assert run.splits_of(ids[1:3]) == names[:1]
    assert run.splits_of(ids[:0]) == []
