"""One kill -9 in each pass and a restart each time: the same bytes as without interruption, nothing done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.support import CHECKOUT, COMMAND, content, headrace

pytestmark = pytest.mark.integration

# No unit of these in the demo: without a range there is nothing to kill.
NEVER = "none"


def _run(recipe: Path, out: Path, log: Path, target: str, after: bool) -> int:
    command = [sys.executable, str(Path(__file__).with_name("killed_run.py")), str(recipe), str(out), str(log)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [*command, target, str(int(after))], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_a_kill_in_each_pass_changes_no_byte_and_repeats_no_finished_unit(
    demo_recipe_file: Path, reference_run: Path, tmp_path: Path
) -> None:
    from pipelines.passes.build import KINDS

    out, log = tmp_path / "run", tmp_path / "commits.log"
    names = [kind.name for kind in KINDS if (reference_run / kind.name).is_dir()]
    assert len(names) == 20
    for position, name in enumerate(names):
        # In turns: a kill between a unit's files and its marker, and one right behind the marker.
        assert _run(demo_recipe_file, out, log, name, after=position % 2 == 1) == -signal.SIGKILL, name
    assert _run(demo_recipe_file, out, log, NEVER, after=False) == 0
    assert content(out) == content(reference_run)
    commits = Counter(log.read_text(encoding="utf-8").split("\n")[:-1])
    assert commits
    assert set(commits.values()) == {1}, [commit for commit, times in commits.items() if times > 1]


def test_workers_end_with_a_killed_driver_and_a_restart_gives_the_same_bytes(
    demo_recipe_file: Path, reference_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = [*COMMAND, "run", str(demo_recipe_file), "--out", str(out), "--workers", "2", "--no-train"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    markers = out / "unfinished" / "judge" / "markers"
    _wait_for(lambda: markers.is_dir() and any(markers.iterdir()), "the first finished split")
    workers = _children(driver.pid)
    assert len(workers) >= 2
    driver.kill()
    driver.wait()
    _wait_for(lambda: not any(_is_alive(pid) for pid in workers), "the workers' end")
    headrace("run", demo_recipe_file, "--out", out, "--workers", "2", "--no-train")
    assert content(out) == content(reference_run)


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
