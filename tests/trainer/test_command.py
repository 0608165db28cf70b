from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from shards.errors import UserError
from tests.trainer.synthetic_run import write_run, write_settings
from trainer import command
from trainer.config import Job


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set here what the command sets for its ranks, so that it does not outlive the test."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")


def _failures(*codes: int) -> dict[int, SimpleNamespace]:
    return {rank: SimpleNamespace(exitcode=code) for rank, code in enumerate(codes)}


@pytest.mark.parametrize(
    ("codes", "expected", "said"),
    [
        ((2, 2), 2, ""),
        ((-signal.SIGTERM, 2), 2, ""),
        ((1, -signal.SIGTERM), 1, ""),
        ((-signal.SIGKILL, -signal.SIGTERM), 1, "rank 0 was ended by SIGKILL: most likely the machine ran out"),
        ((1, -signal.SIGSEGV), 1, "rank 1 was ended by SIGSEGV"),
    ],
)
def test_exit_codes(codes: tuple[int, ...], expected: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command._code(_failures(*codes)) == expected
    err = capsys.readouterr().err
    assert (said in err) if said else err == ""


def test_a_finished_training_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(command, "_launch", lambda ranks, arguments: started.append(arguments) or 0)
    monkeypatch.setattr(command, "_gpus", lambda: 0)
    folder = write_run(tmp_path / "run")
    Job.load(folder).mark_finished(11)
    command.train(folder)
    assert started == []
    assert "is finished" in capsys.readouterr().out
    command.train(folder, fresh=True, stop_after_steps=3)
    assert started == [[str(folder), "--fresh", "--stop-after-steps", "3"]]


def test_what_cannot_be_is_refused_before_ranks_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_launch", lambda ranks, arguments: pytest.fail("started"))
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
