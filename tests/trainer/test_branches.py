from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import IncompleteError, UserError
from tests.shards.small_shards import flip
from tests.trainer.synthetic_run import log, write_run
from trainer.branches import branch_folder, make_branch
from trainer.config import Job
from trainer.loop import Trainer

KEEP_ALL = {"checkpoint_every_steps": 1, "keep_checkpoints": 99}


def _clock() -> float:
    return 0.0


def train(folder: Path, mesh: DeviceMesh, steps: int | None = None, branch: str | None = None) -> Trainer:
    trainer = Trainer(Job.load(folder, branch), mesh, _clock)
    trainer.run(steps)
    return trainer


def lines(folder: Path) -> list[dict[str, Any]]:
    """The log's lines of training, without the evaluations that a run's own ends cause."""
    return log(folder, "train")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, mesh: DeviceMesh) -> Path:
    """A training of all 11 steps, with a checkpoint of each: 5 of "base", 3 of "long", 3 of "anneal"."""
    folder = write_run(tmp_path_factory.mktemp("trained") / "run", training=KEEP_ALL)
    train(folder, mesh)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("step", [1, 5, 6, 10])
def test_a_branch_that_changes_nothing_trains_the_same_steps(folder: Path, mesh: DeviceMesh, step: int) -> None:
    assert make_branch(folder, "same", [], step=step)
    trainer = train(folder, mesh, branch="same")
    assert trainer.finished
    assert lines(branch_folder(folder, "same")) == lines(folder)


def test_branches_share_their_past_and_go_their_own_way(folder: Path, mesh: DeviceMesh) -> None:
    changes = {
        "cold": ["phases.anneal.learning_rate.end=0.001"],
        "books": ["phases.anneal.weights={books=1.0}", "phases.anneal.tokens=1920"],
        "more": [
            "phases.more.tokens=768",
            "phases.more.context_tokens=64",
            "phases.more.batch_tokens=256",
            "phases.more.learning_rate={shape='linear', start=0.001, end=0.0}",
        ],
    }
    before = (folder / "train-log.jsonl").read_bytes()
    for name, changed in changes.items():
        assert make_branch(folder, name, changed, step=7)
        train(folder, mesh, branch=name)
    assert (folder / "train-log.jsonl").read_bytes() == before
    own = {name: lines(branch_folder(folder, name)) for name in changes}
    parent = lines(folder)
    for name, found in own.items():
        assert found[:8] == parent[:8], "what is ahead of the phase in progress has changed alone"
        assert [line["step"] for line in found] == list(range(1, len(found) + 1)), name
    assert [len(found) for found in own.values()] == [11, 13, 14]
    assert set(own["books"][-1]["domains"]) == {"books"}
    assert own["cold"][-1]["learning_rate"] > parent[-1]["learning_rate"]
    assert own["more"][:11] == parent


def test_a_branch_resumes_from_every_step_and_branches_again(folder: Path, mesh: DeviceMesh) -> None:
    make_branch(folder, "once", ["phases.anneal.weights={web=1.0, books=0.2}"], step=4)
    train(folder, mesh, branch="once")
    straight = lines(branch_folder(folder, "once"))
    make_branch(folder, "steps", ["phases.anneal.weights={web=1.0, books=0.2}"], step=4)
    for _ in range(7):
        train(folder, mesh, 1, branch="steps")
    assert lines(branch_folder(folder, "steps")) == straight
    twice = ["phases.long.learning_rate={shape='constant', start=0.002}"]
    make_branch(folder, "twice", twice, of="once", step=6)
    train(folder, mesh, 2, branch="twice")
    train(folder, mesh, branch="twice")
    found = lines(branch_folder(folder, "twice"))
    assert found[:6] == straight[:6]
    assert [line["learning_rate"] for line in found[6:8]] == [0.002, 0.002]
    assert [line["step"] for line in found] == list(range(1, 12))
    said = json.loads((branch_folder(folder, "twice") / "schedule.json").read_bytes())
    assert (said["past"]["steps"], said["past"]["schedule"]["past"]["steps"]) == (6, 4)
    assert said["past"]["schedule"]["past"]["schedule"]["past"] is None


def test_the_newest_checkpoint_is_branched_from_by_default(folder: Path, mesh: DeviceMesh) -> None:
    make_branch(folder, "longer", ["phases.anneal.tokens=1920"])
    trainer = train(folder, mesh, branch="longer")
    assert (trainer.step, trainer.finished) == (13, True)
    assert lines(branch_folder(folder, "longer"))[:11] == lines(folder)


def test_mistakes_are_refused_and_leave_nothing(folder: Path) -> None:
    for name, changes, options, message in (
        ("x", ["phases.base.tokens=256"], {"step": 8}, "phase 'base' was served"),
        ("x", ["tokens"], {}, "not KEY=VALUE"),
        ("x", [], {}, "nothing is left to serve"),
        ("x", [], {"step": 99}, "no checkpoint of step 99"),
        ("x", [], {"of": "y"}, "there is no branch 'y'"),
        ("../x", [], {"step": 3}, "cannot be the name of a branch"),
        (".x", [], {"step": 3}, "cannot be the name of a branch"),
    ):
        with pytest.raises(UserError, match=message):
            make_branch(folder, name, changes, **options)
        assert not [path for path in folder.glob("branches/*") if not path.name.startswith(".")]
    with pytest.raises(UserError, match="there is no branch 'x'"):
        Job.load(folder, "x")


def test_a_branch_does_not_change_once_it_is_made(folder: Path) -> None:
    assert make_branch(folder, "x", [], step=3)
    before = {path: path.read_bytes() for path in (folder / "branches").rglob("*") if path.is_file()}
    assert not make_branch(folder, "x", [])
    for change in ({"changes": ["phases.anneal.tokens=1920"]}, {"changes": [], "step": 4}):
        with pytest.raises(UserError, match="there is a branch 'x' already"):
            make_branch(folder, "x", **change)
    assert {path: path.read_bytes() for path in (folder / "branches").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["branch.json", "schedule.json"])
@pytest.mark.parametrize("at", [0.2, 0.7])
def test_a_branch_whose_files_changed_is_not_trained(folder: Path, name: str, at: float) -> None:
    make_branch(folder, "x", [], step=3)
    flip(branch_folder(folder, "x") / name, at)
    with pytest.raises(UserError):
        Job.load(folder, "x")


def test_a_run_that_was_not_trained_has_nothing_to_branch_from(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with pytest.raises(UserError, match="no checkpoint to branch from"):
        make_branch(folder, "x", [])
    (folder / "digests.json").unlink()
    with pytest.raises(IncompleteError):
        make_branch(folder, "x", [])
