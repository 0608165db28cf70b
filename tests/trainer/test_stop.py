from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.stop import LAUNCHER

_RANK = """
import sys, time
from trainer.stop import Stop
stop = Stop()
print("outside", flush=True)
if sys.argv[1] == "outside":
    time.sleep(60)
with stop.deferred():
    print("inside", flush=True)
    while not stop():
        time.sleep(0.01)
print("stopped", flush=True)
sys.stdin.readline()
"""


def _started(where: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _RANK, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "outside\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_outside_of_steps_ends_the_process_silently(number: signal.Signals) -> None:
    process = _started("outside")
    os.kill(process.pid, number)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_steps_is_deferred_and_a_second_changes_nothing(number: signal.Signals) -> None:
    process = _started("inside")
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    os.kill(process.pid, number)
    assert process.stdout.readline() == "stopped\n"
    os.kill(process.pid, number)
    assert process.communicate("\n", timeout=30) == ("", "")
    assert process.returncode == 0


_LAUNCHER = """
import subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1], "inside"])
sys.stdin.readline()
"""


def test_the_death_of_the_launcher_counts_as_a_signal() -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, _RANK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    assert launcher.stdout is not None
    assert [launcher.stdout.readline() for _ in range(2)] == ["outside\n", "inside\n"]
    os.kill(launcher.pid, signal.SIGKILL)
    assert launcher.stdout.readline() == "stopped\n"
    launcher.communicate(timeout=30)


def test_a_rank_whose_launcher_died_before_it_looks_ends() -> None:
    environment = {**os.environ, LAUNCHER: "1"}
    command = [sys.executable, "-c", _RANK, "outside"]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], timeout=30, check=False)
    assert done.returncode == 128 + signal.SIGTERM
