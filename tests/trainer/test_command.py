from __future__ import annotations

from pathlib import Path

import pytest

from shards.errors import UserError
from shards.lock import LOCK_FILE, locked
from tests.trainer.synthetic_run import write_run, write_settings
from trainer import branches, command, launch
from trainer.config import Job


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set here what the command sets for its ranks, so that it does not outlive the test."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")


def test_a_finished_training_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(launch, "launch", lambda ranks, arguments: started.append(arguments) or 0)
    monkeypatch.setattr(command, "_gpus", lambda: 0)
    folder = write_run(tmp_path / "run")
    Job.load(folder).mark_finished(11, None)
    command.train(folder)
    assert started == []
    assert "is finished" in capsys.readouterr().out
    command.train(folder, fresh=True, stop_after_steps=3)
    command.train(folder, verify=False)
    assert len(started) == 1
    command.train(folder, fresh=True, verify=False)
    assert started == [[str(folder), "--fresh", "--stop-after-steps", "3"], [str(folder), "--fresh", "--no-verify"]]


def test_a_folder_at_work_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launch", lambda ranks, arguments: pytest.fail("started"))
    folder = write_run(tmp_path / "run")
    # As the driver leaves it, at work: the message must not be that the run is to be run again.
    (folder / "digests.json").unlink()
    with locked(folder / LOCK_FILE, "run"), pytest.raises(UserError, match="another process is working") as caught:
        command.train(folder)
    assert caught.value.place == str(folder)
    with pytest.raises(UserError, match="no such folder"):
        command.train(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_what_cannot_be_is_refused_before_ranks_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launch", lambda ranks, arguments: pytest.fail("started"))
    monkeypatch.setattr(command, "_gpus", lambda: 1)
    folder = write_run(tmp_path / "run")
    with pytest.raises(UserError, match="2 ranks do not fit on 1 GPU"):
        command.train(folder, ranks=2)
    monkeypatch.setattr(command, "_gpus", lambda: 0)
    write_settings(folder, model={"layers": 1000, "width": 60_000, "heads": 100})
    with pytest.raises(UserError, match="GiB are free"):
        command.train(folder)
    write_settings(folder, training={"seeed": 1})
    with pytest.raises(UserError, match="Did you mean 'seed'"):
        command.train(folder)
    with pytest.raises(UserError, match="headrace run"):
        command.train(tmp_path)


def test_changes_need_the_name_of_a_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launch", lambda ranks, arguments: pytest.fail("started"))
    folder = write_run(tmp_path / "run")
    for options in ({"changes": ["phases.anneal.tokens=1"]}, {"of": "x"}, {"at_step": 3}):
        with pytest.raises(UserError, match="Add --branch NAME"):
            command.train(folder, **options)
    with pytest.raises(UserError, match="no checkpoint to branch from"):
        command.train(folder, branch="x", changes=["phases.anneal.tokens=1920"])


def test_ranks_are_told_which_branch_they_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(launch, "launch", lambda ranks, arguments: started.append(arguments) or 0)
    monkeypatch.setattr(command, "_gpus", lambda: 0)
    folder = write_run(tmp_path / "run")
    load = Job.load
    monkeypatch.setattr(Job, "load", lambda folder, branch: load(folder))
    monkeypatch.setattr(branches, "make_branch", lambda *arguments, **options: True)
    command.train(folder, changes=["phases.anneal.tokens=1920"], branch="x", stop_after_steps=2)
    assert started == [[str(folder), "--branch", "x", "--stop-after-steps", "2"]]
