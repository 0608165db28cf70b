from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.beam import runners
from pipelines.beam.base import UnitPass
from pipelines.beam.options import BeamOptions
from pipelines.beam.runners import BeamRunner, LocalRunner, make_runner, run_in_memory
from pipelines.workspace import Run
from shards.errors import UserError

RUN = Run("nowhere", "key")
WORKED: list[str] = []


class Work(UnitPass):
    """Notes what it was given."""

    name = "work"

    def section(self, run: Run) -> Any:
        return []

    def units(self, run: Run) -> list[str]:
        return []

    def work(self, run: Run, unit: str) -> None:
        if unit == "wrong":
            raise UserError("the unit is wrong", place="here", remedy="Mend it")
        WORKED.append(unit)


@pytest.fixture(autouse=True)
def nothing_worked() -> None:
    WORKED.clear()


def chunks_of(
    monkeypatch: pytest.MonkeyPatch, units: Sequence[str], workers: int, limit: int | None
) -> list[list[str]]:
    """How a local runner cuts units up, seen at the place where each chunk is run."""
    chunks: list[list[str]] = []
    work = Work()
    monkeypatch.setattr(Work, "units_per_pipeline", limit)
    monkeypatch.setattr(runners, "run_in_memory", lambda work, run, chunk, options: chunks.append(list(chunk)))
    runner = LocalRunner(workers)
    pooled = lambda work, run, given, poll: chunks.extend(list(chunk) for chunk in given)  # noqa: E731
    monkeypatch.setattr(runner, "_run_in_pool", pooled)
    runner.run(work, RUN, units, lambda: None)
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


def test_units_run_in_one_pipeline_in_this_process() -> None:
    run_in_memory(Work(), RUN, ["a", "b", "c"])
    assert sorted(WORKED) == ["a", "b", "c"]


def test_a_users_mistake_stays_one_with_its_remedy() -> None:
    with LocalRunner(1) as runner, pytest.raises(UserError, match=r"the unit is wrong\. Where: here\. Mend it"):
        runner.run(Work(), RUN, ["wrong"], lambda: None)


def test_progress_is_polled_while_work_blocks_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(runners, "run_in_memory", lambda work, run, chunk, options: time.sleep(0.1))
    polls: list[float] = []
    LocalRunner(1).run(Work(), RUN, ["a"], lambda: polls.append(time.monotonic()))
    count = len(polls)
    assert count >= 2
    time.sleep(0.05)
    assert len(polls) == count
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-progress"]


@pytest.mark.parametrize("repeat", [None, 2])
def test_a_local_pipeline_is_in_memory_and_takes_beams_options(
    repeat: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[type, int]] = []

    class Pipeline(beam.Pipeline):  # type: ignore[misc]
        def __init__(self, runner: Any, options: Any) -> None:
            used.append((type(runner), options.get_all_options()["direct_runner_bundle_repeat"]))
            super().__init__(runner=runner, options=options)

    monkeypatch.setattr(runners.beam, "Pipeline", Pipeline)
    more = [] if repeat is None else [f"--direct_runner_bundle_repeat={repeat}"]
    options = BeamOptions.parse(["--runner=DirectRunner", *more])
    with make_runner(1, options) as runner:
        runner.run(Work(), RUN, ["a", "b"], lambda: None)
    assert used == [(FnApiRunner, repeat or 0)]
    assert set(WORKED) == {"a", "b"}


def test_whose_runner_does_the_work() -> None:
    assert isinstance(make_runner(2, None), LocalRunner)
    assert isinstance(make_runner(2, BeamOptions.parse(["--runner=DirectRunner"])), LocalRunner)
    assert isinstance(make_runner(2, BeamOptions.parse(["--runner=PrismRunner"])), BeamRunner)


def test_beam_flushes_every_element_from_its_own_thread() -> None:
    assert worker_handlers.DATA_BUFFER_TIME_LIMIT_MS == 0
