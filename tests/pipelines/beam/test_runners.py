from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.beam import runners
from pipelines.beam.base import Inputs, UnitPass
from pipelines.beam.options import BeamOptions
from pipelines.beam.runners import BeamRunner, LocalRunner, Pipeline, RunnerError, make_runner
from pipelines.beam.work_list import Unit
from pipelines.run import Run
from pipelines.workspace import Job
from shards.errors import UserError
from shards.store import Store

NOTHING = Inputs(cast(Run, None), ())
WORKED: list[str] = []


def _fail() -> None:
    raise RuntimeError("can't start new thread")


@dataclass(frozen=True)
class Work(UnitPass):
    """Notes what it was given."""

    name: ClassVar[str] = "work"

    def units(self, inputs: Inputs) -> list[str]:
        return []

    def work(self, job: Job, unit: Unit) -> None:
        if unit.name == "thread":
            threading.Thread(target=_fail).start()
            time.sleep(3)
        if unit.name == "memory":
            raise MemoryError
        if unit.name == "key":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(3)
        if unit.name == "wrong":
            raise UserError("the unit is wrong", place="here", remedy="Fix it")
        WORKED.append(unit.name)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(str(tmp_path), "key", "work", "digest")


@pytest.fixture(autouse=True)
def nothing_worked() -> None:
    WORKED.clear()


def chunks_of(
    monkeypatch: pytest.MonkeyPatch, units: Sequence[str], workers: int, limit: int | None
) -> list[list[str]]:
    """How a local runner cuts units up, seen at the place where a pipeline is made of each chunk."""
    chunks: list[list[str]] = []

    class Seen:
        @classmethod
        def of(cls, work: Any, job: Any, inputs: Any, chunk: Sequence[str], parts: Any = None) -> Seen:
            chunks.append(list(chunk))
            return cls()

        def run(self, options: Sequence[str]) -> None:
            return

    monkeypatch.setattr(Work, "units_per_pipeline", limit)
    monkeypatch.setattr(runners, "Pipeline", Seen)
    runner = LocalRunner(workers)
    monkeypatch.setattr(runner, "_run_in_pool", lambda pipelines, poll: None)
    runner.run(Work(), Job("nowhere", "key", "work", "digest"), NOTHING, units, lambda: None)
    return chunks


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("limit", [None, 1, 4])
@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_every_unit_is_done_once_in_chunks_under_the_limit(
    monkeypatch: pytest.MonkeyPatch, workers: int, limit: int | None, count: int
) -> None:
    units = [f"{index:05d}" for index in range(count)]
    chunks = chunks_of(monkeypatch, units, workers, limit)
    assert sorted(unit for chunk in chunks for unit in chunk) == units
    assert all(chunk == sorted(chunk) and 0 < len(chunk) <= (limit or count) for chunk in chunks)
    # Nobody is idle while another has more than one unit.
    assert len(chunks) >= min(workers, count)


def test_units_run_in_one_pipeline_in_this_process(job: Job) -> None:
    Pipeline.of(Work(), job, NOTHING, ["a", "b", "c"]).run()
    assert sorted(WORKED) == ["a", "b", "c"]


def test_a_users_mistake_stays_one_with_its_remedy(job: Job) -> None:
    with LocalRunner(1) as runner, pytest.raises(UserError, match=r"the unit is wrong\. Where: here\. Fix it"):
        runner.run(Work(), job, NOTHING, ["wrong"], lambda: None)


def test_a_damaged_list_of_work_is_found_and_the_next_run_writes_it_anew(job: Job) -> None:
    pipeline = Pipeline.of(Work(), job, NOTHING, ["a", "b"])
    (path,) = pipeline.parts
    data = job.store.read_bytes(path)
    job.store.write_bytes(path, data.replace(b"a", b"c"))
    with pytest.raises(UserError, match=r"is not what was written.*Run the recipe again"):
        pipeline.run()
    assert WORKED == []
    again = Pipeline.of(Work(), job, NOTHING, ["a", "b"])
    assert again.parts == [path]
    again.run()
    assert sorted(WORKED) == ["a", "b"]


@pytest.mark.parametrize("fails", [True, False])
def test_another_runner_takes_the_units_in_one_pipeline(job: Job, fails: bool) -> None:
    with BeamRunner(["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]) as runner:
        if fails:
            # A runner knows no user's error: what it said is told, and that finished work is kept.
            with pytest.raises(RunnerError, match="failed in pass work; finished work is kept"):
                runner.run(Work(), job, NOTHING, ["wrong"], lambda: None)
        else:
            runner.run(Work(), job, NOTHING, ["a", "b", "c"], lambda: None)
            assert sorted(WORKED) == ["a", "b", "c"]
            assert len(Store(job.root).list("unfinished/work/work")) == 1


def test_progress_is_polled_while_work_blocks_and_no_longer(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(Pipeline, "run", lambda pipeline, options: time.sleep(0.1))
    polls: list[float] = []
    LocalRunner(1).run(Work(), job, NOTHING, ["a"], lambda: polls.append(time.monotonic()))
    count = len(polls)
    assert count >= 2
    time.sleep(0.05)
    assert len(polls) == count
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-progress"]


@pytest.mark.parametrize("repeat", [None, 2])
def test_a_local_pipeline_is_in_memory_and_takes_beams_options(
    repeat: int | None, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[type, int]] = []

    class Seen(beam.Pipeline):  # type: ignore[misc]
        def __init__(self, runner: Any, options: Any) -> None:
            used.append((type(runner), options.get_all_options()["direct_runner_bundle_repeat"]))
            super().__init__(runner=runner, options=options)

    monkeypatch.setattr(runners.beam, "Pipeline", Seen)
    more = [] if repeat is None else [f"--direct_runner_bundle_repeat={repeat}"]
    options = BeamOptions.parse(["--runner=DirectRunner", *more])
    with make_runner(1, options) as runner:
        runner.run(Work(), job, NOTHING, ["a", "b"], lambda: None)
    assert used == [(FnApiRunner, repeat or 0)]
    assert set(WORKED) == {"a", "b"}


def test_whose_runner_does_the_work() -> None:
    assert isinstance(make_runner(2, None), LocalRunner)
    assert isinstance(make_runner(2, BeamOptions.parse(["--runner=DirectRunner"])), LocalRunner)
    assert isinstance(make_runner(2, BeamOptions.parse(["--runner=PrismRunner"])), BeamRunner)


def test_beam_flushes_every_element_from_its_own_thread() -> None:
    assert worker_handlers.DATA_BUFFER_TIME_LIMIT_MS == 0


@pytest.mark.parametrize(
    ("unit", "error", "said"),
    [("thread", RuntimeError, "can't start new thread"), ("memory", MemoryError, "^$"), ("key", KeyboardInterrupt, "")],
)
def test_what_ends_a_thread_or_memory_ends_the_run_as_itself(
    job: Job, unit: str, error: type[BaseException], said: str
) -> None:
    hook, began = threading.excepthook, time.monotonic()
    with LocalRunner(1) as runner, pytest.raises(error, match=said or None):
        runner.run(Work(), job, NOTHING, [unit], lambda: None)
    assert threading.excepthook is hook
    assert unit == "memory" or time.monotonic() - began < 60


def test_beam_leaves_no_folder_and_says_nothing(
    job: Job,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    temporary = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    for pipeline in (Pipeline.of(Work(), job, NOTHING, [unit]) for unit in ("a", "wrong")):
        with contextlib.suppress(UserError):
            pipeline.run()
    assert list(temporary.rglob("beam-pipeline*")) == []
    assert [record.name for record in caplog.records if record.name.startswith("apache_beam.runners")] == []
