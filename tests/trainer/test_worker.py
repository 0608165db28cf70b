"""One rank in this process; tests/integration/test_trainer_ranks.py has several, each a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from shards.lock import LOCK_FILE, locked
from tests.trainer.synthetic_run import log, write_run, write_settings
from trainer import worker
from trainer.config import Job
from trainer.launch import INTERRUPTED, RENDEZVOUS_FAILED
from trainer.loop import DivergedError
from trainer.stop import LAUNCHER
from trainer.worker import RendezvousFailedError, main


class Asks:
    """Stands in for ``Stop``, which would change this process's signal handlers; asks for a stop at some steps."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.is_deferred = list(answers), False

    def __call__(self) -> bool:
        return self.answers.pop(0) if self.answers else False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        self.is_deferred = True
        yield


@pytest.fixture
def folder(tmp_path: Path, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(worker, "_ranks", lambda: nullcontext(mesh))
    monkeypatch.setattr(worker, "Stop", Asks)
    monkeypatch.delenv("RANK", raising=False)
    return write_run(tmp_path / "run", documents=60)


def test_a_training_goes_to_its_end_and_leaves_its_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("verified 0.")
    assert lines[1].endswith("16.0 bytes per parameter on each rank, 1 MiB")
    assert lines[-1] == f"finished: 11 steps; weights in {folder / 'weights'}"
    assert Job.load(folder).is_finished
    assert {path.name for path in (folder / "weights").iterdir()} == {
        "config.json",
        "model.safetensors",
        "finished.json",
    }


def test_timings_have_an_mfu_where_the_peak_is_known(folder: Path) -> None:
    write_settings(folder, training={"peak_flops": 1e12})
    assert main([str(folder), "--stop-after-steps", "2", "--no-verify"]) == 0
    timings = [json.loads(line) for line in (folder / "train-timings.jsonl").read_text().splitlines()]
    assert [0 < line["mfu"] < 1 for line in timings] == [True, True]


def test_the_stage_that_was_chosen_is_told_with_its_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_settings(folder, training={"zero": "auto"})
    assert main([str(folder), "--stop-after-steps", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("zero = 0: 0.4 GiB on each rank, fits in the ")
    assert "fp32 with ZeRO 0 on 1 rank(s)" in lines[2]


def test_it_stops_resumes_and_starts_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--stop-after-steps", "2", "--no-verify"]) == 0
    out = capsys.readouterr().out
    assert f"stopped after step 2; resume with: headrace train {folder}" in out
    assert "verified" not in out
    assert main([str(folder), "--stop-after-steps", "1"]) == 0
    assert "resuming from checkpoint step-00000002" in capsys.readouterr().out
    assert [line["step"] for line in log(folder, "train")] == [1, 2, 3]
    assert main([str(folder), "--fresh", "--stop-after-steps", "1"]) == 0
    assert [line["step"] for line in log(folder, "train")] == [1]
    assert not (folder / "weights").exists()


def test_a_signal_ends_it_with_a_checkpoint_and_its_own_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Asks(False, True, True)
    monkeypatch.setattr(worker, "Stop", lambda: asks)
    assert main([str(folder)]) == INTERRUPTED
    assert asks.is_deferred
    assert (folder / "checkpoints/step-00000002/COMMITTED.json").is_file()
    assert not (folder / "weights").exists()


def test_a_users_error_is_one_message_of_the_first_rank(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_settings(folder, training={"seeed": 1})
    assert main([str(folder)]) == 2
    assert capsys.readouterr().err.startswith("error: unknown key 'seeed'")
    monkeypatch.setenv("RANK", "1")
    assert main([str(folder)]) == 2
    assert capsys.readouterr() == ("", "")


def test_a_damaged_shard_is_found_before_the_first_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next((folder / "shards").glob("web-train*.tokens.arrow"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert main([str(folder)]) == 2
    assert capsys.readouterr().err.startswith(f"error: the shard {path.name} does not have the checksum")
    assert not (folder / "train-log.jsonl").exists()


def test_the_first_rank_holds_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []

    def train(*_: Any, **__: Any) -> bool:
        with pytest.raises(ValueError, match="another process"), locked(folder / LOCK_FILE, "run"):
            pytest.fail("held twice")
        taken.append(True)
        return False

    monkeypatch.setattr(worker, "train", train)
    assert main([str(folder)]) == 0
    assert taken == [True]
    with locked(folder / LOCK_FILE, "run"):
        # Only the first rank asks for it.
        assert main([str(folder)]) == 2
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setattr(worker, "train", lambda *_, **__: False)
        assert main([str(folder)]) == 0


@pytest.mark.parametrize(
    ("error", "asks", "code", "said"),
    [
        (DivergedError("step 3: the gradient's norm is nan"), [], 1, "error: step 3: the gradient's norm is nan\n"),
        (RendezvousFailedError("rank 0 cannot join"), [], RENDEZVOUS_FAILED, "error: rank 0 cannot join\n"),
        (RuntimeError("connection closed by peer"), [True], INTERRUPTED, ""),
    ],
)
def test_every_end_has_its_code(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    asks: list[bool],
    code: int,
    said: str,
) -> None:
    def fail(*_: Any, **__: Any) -> bool:
        raise error

    monkeypatch.delenv(LAUNCHER, raising=False)
    monkeypatch.setattr(worker, "Stop", lambda: Asks(*asks))
    monkeypatch.setattr(worker, "train", fail)
    assert main([str(folder), "--no-verify"]) == code
    assert capsys.readouterr().err == said


def test_a_defect_is_not_swallowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "train", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([str(folder), "--no-verify"])


@pytest.mark.parametrize(
    ("said", "shown", "remedy"),
    [
        (
            "[enforce fail at /src/gloo/device.cc:1] rv. Unable to find address for: nowhere0\ntrace",
            "(Unable to find address for: nowhere0)",
            "GLOO_SOCKET_IFNAME is an interface here",
        ),
        (
            "The server socket has failed: EADDRINUSE\ntrace",
            "(The server socket has failed: EADDRINUSE)",
            "choose another",
        ),
        ("port: Address already in use", "(port: Address already in use)", "choose another with MASTER_PORT"),
    ],
)
def test_a_rank_that_cannot_join_says_where_and_why(
    monkeypatch: pytest.MonkeyPatch, said: str, shown: str, remedy: str
) -> None:
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "10.0.0.7"), ("MASTER_PORT", "29500")):
        monkeypatch.setenv(name, value)

    def fail(backend: str) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(dist, "init_process_group", fail)
    with pytest.raises(RendezvousFailedError) as caught, worker._ranks():
        pytest.fail("joined")
    message = str(caught.value)
    assert message.startswith(f"rank 3 cannot join the other ranks at 10.0.0.7:29500 {shown}. ")
    assert remedy in message
    assert "\n" not in message
