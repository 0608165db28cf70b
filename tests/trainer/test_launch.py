from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError
from torch.distributed.launcher import api

from shards.errors import UserError
from tests.integration.support import CHECKOUT, COMMAND
from tests.trainer.synthetic_run import write_run
from trainer import launch
from trainer.stop import LAUNCHER


def _failures(*codes: int) -> dict[int, SimpleNamespace]:
    said = [{"message": f"SomeError: rank {rank}: why"} for rank in range(len(codes))]
    return {rank: SimpleNamespace(exitcode=code, message=said[rank]) for rank, code in enumerate(codes)}


@pytest.mark.parametrize(
    ("codes", "expected", "said"),
    [
        ((2, 2), 2, ""),
        ((-signal.SIGTERM, 2), 2, ""),
        ((1, -signal.SIGTERM), 1, ""),
        ((-signal.SIGKILL, -signal.SIGTERM), 1, "rank 0 was ended by SIGKILL: most likely the machine ran out"),
        ((1, -signal.SIGSEGV), 1, "rank 1 was ended by SIGSEGV"),
        ((130, -signal.SIGTERM), 130, ""),
        ((130, 2), 2, ""),
        ((3, 3), 1, "error: rank 0: why\n"),
        ((3, -signal.SIGTERM), 1, "error: rank 0: why\n"),
        ((-signal.SIGTERM, 3), 1, "error: rank 1: why\n"),
    ],
)
def test_exit_codes(codes: tuple[int, ...], expected: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.exit_code(_failures(*codes)) == expected
    err = capsys.readouterr().err
    assert (said in err) if said else err == ""


@pytest.mark.parametrize(
    ("ranks", "cores", "given", "threads", "noted"),
    [
        (1, 2, {}, "2", False),
        (2, 2, {}, "1", False),
        (2, 9, {}, "4", False),
        (4, 2, {}, "1", True),
        (2, 1, {}, "1", True),
        (2, 8, {"OMP_NUM_THREADS": "3"}, "3", False),
        (2, 8, {"OMP_NUM_THREADS": "4"}, "4", False),
        (2, 2, {"OMP_NUM_THREADS": "2"}, "1", True),
        (4, 2, {"OMP_NUM_THREADS": "1"}, "1", True),
        (1, 4, {"OMP_NUM_THREADS": " 2,1 "}, "2", False),
        (2, 4, {"OMP_NUM_THREADS": "many"}, "2", False),
        (2, 4, {"OMP_NUM_THREADS": "0"}, "2", False),
    ],
)
def test_all_ranks_together_have_no_more_threads_than_there_are_cores(
    ranks: int, cores: int, given: dict[str, str], threads: str, noted: bool
) -> None:
    environment, note = launch.rank_environment(ranks, cores, given)
    assert environment["OMP_NUM_THREADS"] == threads
    assert ranks * int(threads) <= max(ranks, cores)
    assert (note is not None) == noted


def test_ranks_start_with_what_they_need_and_with_what_a_person_sets() -> None:
    bare, _ = launch.rank_environment(1, 2, {})
    assert bare.keys() >= {"PYTHONSAFEPATH", "TORCH_CPP_LOG_LEVEL", "GOMP_SPINCOUNT"}
    if sys.platform == "linux":
        assert bare["GLOO_SOCKET_IFNAME"] == "lo"
    given = {"PYTHONSAFEPATH": "", "TORCH_CPP_LOG_LEVEL": "INFO", "GOMP_SPINCOUNT": "5"}
    environment, _ = launch.rank_environment(1, 2, given)
    assert environment.keys().isdisjoint(given)
    environment, _ = launch.rank_environment(1, 2, {"OMP_WAIT_POLICY": "active"})
    assert "GOMP_SPINCOUNT" not in environment
    # One for several machines may not be on this one; all ranks are.
    environment, _ = launch.rank_environment(1, 2, {"GLOO_SOCKET_IFNAME": "ib7"})
    assert environment.get("GLOO_SOCKET_IFNAME") == bare.get("GLOO_SOCKET_IFNAME")


def test_loopback_is_there() -> None:
    launch.require_loopback()


def test_no_loopback_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(UserError, match="the ranks cannot reach each other on this machine") as caught:
        launch.launch(1, [])
    assert "Network is unreachable" in caught.value.what
    assert "ip link set lo up" in caught.value.remedy


def test_a_rendezvous_that_fails_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: Any, entry: str) -> Any:
        try:
            raise RuntimeError("the port is taken\nC++ stacktrace:\n...")
        except RuntimeError as cause:
            raise RendezvousConnectionError("See inner exception for details.") from cause

    monkeypatch.setattr(api, "elastic_launch", fail)
    # The launcher sets it for its ranks; it must not outlive the test.
    monkeypatch.setenv(LAUNCHER, "")
    with pytest.raises(UserError, match=r"cannot reach each other on this machine \(the port is taken\)"):
        launch.launch(1, [])


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, to take the network away")
def test_a_machine_without_loopback_hears_so_at_once(tmp_path: Path) -> None:
    # Torch alone tries for two minutes.
    done = _train(tmp_path, "unshare", "--net", "--map-root-user", timeout=100)
    if "unshare" in done.stderr:
        pytest.skip(f"this machine lets nobody take the network away: {done.stderr}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: the ranks cannot reach each other on this machine ([Errno 101] Network is")
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.integration
def test_ranks_that_cannot_join_are_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the launcher sets for ranks is right, so a person's own hook has to spoil it.
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import os\nif 'RANK' in os.environ: os.environ['GLOO_SOCKET_IFNAME'] = 'nowhere0'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hook))
    done = _train(tmp_path, ranks=2)
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.match(r"error: rank \d cannot join the other ranks at 127\.0\.0\.1:\d+ \(Unable .*: nowhere0\)", line)
    assert line.endswith("GLOO_SOCKET_IFNAME is an interface here")


def _train(
    tmp_path: Path, *before: str, ranks: int = 1, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    folder = write_run(tmp_path / "run")
    return subprocess.run(
        [*before, *COMMAND, "train", str(folder), "--ranks", str(ranks)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.integration
@pytest.mark.parametrize("port", ["taken", "abc"])
def test_a_port_that_cannot_be_had_is_one_message(port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run")
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]) if port == "taken" else port)
        command = [sys.executable, "-m", "trainer", str(folder)]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == launch.RENDEZVOUS_FAILED
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: rank 0 cannot join the other ranks at 127.0.0.1:")
    assert ("Another program uses this port" in line) == (port == "taken")
