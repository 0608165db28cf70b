"""Signals to driver and workers, a second driver, and kills at random moments: nothing is left, and no byte differs."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.small import ended, group, start
from tests.integration.support import content

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
"""Kills at random moments; more than CI has time for are asked for in the environment."""
SEED = int(os.environ.get("HEADRACE_SEED", "9"))
SECONDS = 12.0
"""About what a run takes where nothing else does: later kills find it finished."""
STOPPED = "error: stopped; finished work is kept; run the same command again\n"


@pytest.fixture
def run(small_recipe: Path, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts the run into ``tmp_path / "run"``, with temporary files in ``tmp_path / "tmp"``."""
    (tmp_path / "tmp").mkdir()
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        command = ("run", small_recipe, "--out", tmp_path / "run", "--workers", "2", "--no-train")
        started.append(start(*command, temporary=tmp_path / "tmp"))
        return started[-1]

    yield begin
    for process in started:
        for pid in group(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def when(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers(driver: int) -> list[int]:
    """The worker processes of a driver: those of its group that run its code, but not the one that tracks resources."""
    found = []
    for pid in group(driver):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"spawn_main" in command:
            found.append(pid)
    return found


def assert_nothing_left(process: subprocess.Popen[str], place: Path) -> None:
    when(lambda: group(process.pid) == [])
    assert not list((place / "run").rglob(".scratch"))
    left = [path for path in (place / "tmp").rglob("*") if path.is_file() or path.name.startswith(("beam", "w-"))]
    assert left == []


def test_signals_stop_it_at_once_and_cleanly_and_workers_may_die(
    run: Callable[[], subprocess.Popen[str]], small_run: Path, tmp_path: Path
) -> None:
    attempts = tmp_path / "run" / "unfinished" / "judge" / "attempts"
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = run()
        when(lambda: attempts.is_dir() and bool(list(attempts.iterdir())))
        if number == signal.SIGINT:
            # As a terminal sends it.
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert ended(process) == (code, STOPPED)
        assert_nothing_left(process, tmp_path)
    process = run()
    when(lambda: len(workers(process.pid)) == 2)
    other = run()
    code, said = ended(other)
    assert code == 2
    assert said == (
        f"error: another process is working in this folder (process {process.pid})\n"
        f"  where: {tmp_path / 'run'}\n  Wait for it, or stop it\n"
    )
    for number in (signal.SIGTERM, signal.SIGKILL):
        when(lambda: bool(workers(process.pid)) and attempts.is_dir())
        os.kill(workers(process.pid)[0], number)
        time.sleep(1)
    code, said = ended(process)
    assert (code, said) == (0, "")
    assert content(tmp_path / "run") == content(small_run)
    assert_nothing_left(process, tmp_path)


def test_kills_at_random_moments_change_no_byte(
    run: Callable[[], subprocess.Popen[str]], small_run: Path, tmp_path: Path
) -> None:
    moments = random.Random(SEED)
    for _ in range(KILLS):
        process = run()
        # At first the imports, which come again each time; then a part of the run that grows, as it is resumed.
        time.sleep(moments.uniform(1.0, SECONDS))
        for pid in group(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        when(lambda process=process: group(process.pid) == [])
    process = run()
    assert ended(process) == (0, "")
    assert content(tmp_path / "run") == content(small_run)
    assert_nothing_left(process, tmp_path)
    assert not re.search("unfinished", " ".join(content(tmp_path / "run")))
