from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shards.errors import UserError
from tests.trainer.synthetic_run import write_run
from trainer import launch

ROOT = Path(__file__).parents[2]


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
        ((130, -signal.SIGTERM), 130, ""),
        ((130, 2), 2, ""),
        ((3, 3), 1, ""),
        ((3, -signal.SIGTERM), 1, ""),
        ((-signal.SIGTERM, 3), 1, "rank 1 cannot join the other ranks"),
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
        (4, 2, {}, "1", False),
        (2, 8, {"OMP_NUM_THREADS": "3"}, "3", False),
        (2, 8, {"OMP_NUM_THREADS": "4"}, "4", False),
        (2, 2, {"OMP_NUM_THREADS": "2"}, "1", True),
        (4, 2, {"OMP_NUM_THREADS": "1"}, "1", False),
        (2, 4, {"OMP_NUM_THREADS": "many"}, "2", False),
        (2, 4, {"OMP_NUM_THREADS": "0"}, "2", False),
    ],
)
def test_all_ranks_together_have_no_more_threads_than_there_are_cores(
    ranks: int, cores: int, given: dict[str, str], threads: str, noted: bool
) -> None:
    environment, note = launch.rank_environment(ranks, cores, given)
    assert environment["OMP_NUM_THREADS"] == threads
    assert (note is not None) == noted


def test_what_a_person_sets_besides_stays() -> None:
    for given in (
        {"PYTHONSAFEPATH": "", "GLOO_SOCKET_IFNAME": "eth7", "GOMP_SPINCOUNT": "5"},
        {"OMP_WAIT_POLICY": "active"},
    ):
        environment, _ = launch.rank_environment(1, 2, given)
        assert environment.keys().isdisjoint(given)
    assert "GOMP_SPINCOUNT" not in environment
    assert launch.rank_environment(1, 2, {})[0]["GOMP_SPINCOUNT"] == "1000"


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


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, to take the network away")
def test_a_machine_without_loopback_hears_so_within_seconds(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    command = [sys.executable, "-P", "-c", "from pipelines.cli import main; main()", "train", str(folder)]
    # Torch alone tries for two minutes.
    alone = ["unshare", "--net", "--map-root-user", *command]
    done = subprocess.run(alone, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"this machine lets nobody take the network away: {done.stderr}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: the ranks cannot reach each other on this machine")
    assert "Traceback" not in done.stderr


@pytest.mark.integration
def test_a_port_that_is_taken_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        command = [sys.executable, "-m", "trainer.worker", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == launch.NEVER_MET
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("[W")]
    assert line.startswith("error: rank 0 cannot join the other ranks at 127.0.0.1:")
    assert "MASTER_PORT" in line
