from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.beam.child import CallError, Child, ChildDiedError, ChildStartError
from shards.errors import UserError
from stages.failing import STAGE_ERROR, Failure
from tests.pipelines.beam import killers
from tests.pipelines.beam.killers import DEATHS, answer, raising

# Starts processes.
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    made = Child()
    yield made
    made.close()


def pid_of(child: Child) -> int:
    (found,) = child.call(answer, None)
    return int(found.column("pid")[0].as_py())


def test_one_process_answers_every_call_and_is_not_this_one(child: Child) -> None:
    assert pid_of(child) == pid_of(child) != os.getpid()
    numbers = [batch.column("number")[0].as_py() for batch in child.call(answer, 3)]
    assert numbers == [0, 1, 2]
    (found,) = child.call(answer, None, pa.record_batch({"text": ["a", "b"]}))
    assert found.column("rows")[0].as_py() == 2


@pytest.mark.parametrize(("demand", "end"), [item for item in DEATHS.items() if item[0] in ("!kill", "!exit")])
def test_a_call_that_kills_is_told_and_the_next_one_has_a_fresh_process(child: Child, demand: str, end: str) -> None:
    before = pid_of(child)
    with pytest.raises(ChildDiedError, match=f"^{end}$"):
        list(child.call(answer, demand))
    assert pid_of(child) != before


def test_errors_come_back_as_what_they_are_and_the_child_lives(child: Child) -> None:
    before = pid_of(child)
    with pytest.raises(UserError, match="no model") as user:
        list(child.call(raising, UserError("no model", place="here", remedy="Add one")))
    assert (user.value.place, user.value.remedy) == ("here", "Add one")
    with pytest.raises(FileNotFoundError) as missing:
        list(child.call(raising, FileNotFoundError(2, "No such file", "model.bin")))
    assert (missing.value.errno, missing.value.filename) == (2, "model.bin")
    with pytest.raises(BrokenPipeError):
        list(child.call(raising, BrokenPipeError(32, "Broken pipe")))
    with pytest.raises(OSError, match=r"^it broke$"):
        list(child.call(raising, OSError("it broke")))
    with pytest.raises(CallError, match="ValueError: wrong") as other:
        list(child.call(raising, ValueError("wrong\nand more")))
    assert other.value.failure == Failure(STAGE_ERROR, "ValueError: wrong")
    with pytest.raises(CallError, match="PanicError"):
        list(child.call(raising, killers.PanicError()))
    with pytest.raises(CallError, match="EOFError"):
        list(child.call(raising, EOFError()))
    assert pid_of(child) == before


def test_giving_up_early_ends_the_process(child: Child) -> None:
    answers = child.call(answer, 1_000_000)
    first = next(answers).column("pid")[0].as_py()
    answers.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert pid_of(child) != first


def test_a_process_that_was_ended_between_calls_is_a_death_of_the_next_one(child: Child) -> None:
    os.kill(pid_of(child), signal.SIGTERM)
    with pytest.raises(ChildDiedError, match="SIGTERM"):
        pid_of(child)
    assert pid_of(child)


def test_a_child_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ChildStartError, match=r"(?s)does not start: exit code 1.*ModuleNotFoundError"):
        pid_of(Child())


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_ends_with_its_parent_in_the_middle_of_a_call() -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import os; from pipelines.beam.child import Child; from tests.pipelines.beam.killers import sleeping\n"
        "answers = Child().call(sleeping, 60)\n"
        "print(next(answers).column('pid')[0], flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_there(pid)
