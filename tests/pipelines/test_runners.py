from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines import runners
from pipelines.passes.base import UnitPass
from pipelines.runners import BeamRunner, LocalRunner, check_options, is_local, make_runner, run_in_memory
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


@pytest.mark.parametrize(
    "options",
    [
        ["--runner=PrismRunner", "--direct_running_mode=multi_threading"],
        ["--runner=PrismRunner", "--direct_running_mode", "multi_processing"],
        ["--runner=PrismRunner", "--direct_num_workers=2"],
    ],
)
def test_what_loses_data_is_refused(options: list[str]) -> None:
    with pytest.raises(UserError, match="lose data silently"):
        check_options(options)


@pytest.mark.parametrize(
    "options",
    [
        ["--runner=DirectRunner"],
        ["--runner", "DirectRunner"],
        ["--runner=directrunner"],
        ["--runner=direct"],
        ["--runner=FnApiRunner"],
        ["--runner=BundleBasedDirectRunner"],
        ["--runner=apache_beam.runners.direct.direct_runner.DirectRunner"],
        ["--runner=DirectRunner", "--direct_runner_bundle_repeat=2"],
    ],
)
def test_the_local_runner_is_pinned_to_the_one_in_memory_under_all_its_names(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[type, int]] = []

    class Pipeline(beam.Pipeline):  # type: ignore[misc]
        def __init__(self, runner: Any, options: Any) -> None:
            used.append((type(runner), options.get_all_options()["direct_runner_bundle_repeat"]))
            super().__init__(runner=runner, options=options)

    monkeypatch.setattr(runners.beam, "Pipeline", Pipeline)
    assert is_local(options)
    with make_runner(1, options) as runner:
        assert isinstance(runner, LocalRunner)
        runner.run(Work(), RUN, ["a", "b"], lambda: None)
    assert used == [(FnApiRunner, 2 if len(options) == 2 and "repeat" in options[1] else 0)]
    assert set(WORKED) == {"a", "b"}


@pytest.mark.parametrize("name", ["PrismRunner", "FlinkRunner", "PortableRunner", "indirectrunner", "some.module.Nope"])
def test_other_runners_are_not_local(name: str) -> None:
    assert not is_local([f"--runner={name}"])


def test_the_local_runner_takes_no_option_that_beam_does_not_know() -> None:
    with pytest.raises(UserError, match="Beam has no option --direct_runner_bundle_repeats") as caught:
        make_runner(1, ["--runner=DirectRunner", "--direct_runner_bundle_repeats=2"])
    assert caught.value.remedy == "Did you mean --direct_runner_bundle_repeat?"


@pytest.mark.parametrize("option", ["--direct_num_workers=2", "--direct_running_mode=multi_processing"])
def test_the_local_runner_works_in_no_parallel_mode_of_beams(option: str) -> None:
    with pytest.raises(UserError, match="lose data silently") as caught:
        make_runner(2, ["--runner=DirectRunner", option])
    assert "--workers N" in caught.value.remedy


def test_options_need_a_runner() -> None:
    with pytest.raises(UserError, match="without a runner"):
        check_options(["--temp_location=/tmp/x"])


def test_other_runners_are_welcome() -> None:
    check_options(["--runner=PrismRunner", "--prism_location=/opt/prism"])
    check_options(["--runner", "PortableRunner", "--job_endpoint=localhost:8073"])
    assert isinstance(make_runner(2, ["--runner=PrismRunner"]), BeamRunner)
    assert isinstance(make_runner(2, []), LocalRunner)


def test_beam_flushes_every_element_from_its_own_thread() -> None:
    assert worker_handlers.DATA_BUFFER_TIME_LIMIT_MS == 0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--runner=Nope"], "no runner 'Nope'"),
        (["--runner=PrismRunner", "--prism_location=./noprism"], "no program './noprism'"),
        (["--runner=PortableRunner", "--job_endpoint=localhost:1"], "no job server answers at 'localhost:1'"),
    ],
)
def test_a_runner_that_cannot_be_had_is_refused_at_once(options: list[str], what: str) -> None:
    with pytest.raises(UserError, match=what):
        make_runner(1, options)
