from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import cost_files
from pipelines.beam import meter
from pipelines.beam.coder import RecordBatchCoder
from pipelines.beam.dofn import Step
from pipelines.beam.meter import COSTS, Clock, Meter
from pipelines.beam.units import numbered
from pipelines.cost_files import Cost, UnitCosts
from shards.store import Store

EMPTY = pa.RecordBatch.from_pydict({"n": pa.array([], pa.int64())})


class Time:
    """A clock that goes on only when someone spends, and more on the wall and in the process than in the thread."""

    def __init__(self) -> None:
        self.ns = 0

    def spend(self, ns: int) -> None:
        self.ns += ns

    def clock(self) -> Clock:
        return Clock(thread_ns=lambda: self.ns, process_ns=lambda: 10 * self.ns, wall_ns=lambda: 100 * self.ns)


@contextmanager
def metered() -> Iterator[tuple[Time, list[UnitCosts]]]:
    """A meter on a clock of its own, and the records that it writes."""
    clock, written = Time(), list[UnitCosts]()

    def write(store: Any, pass_name: str, record: UnitCosts) -> None:
        assert pass_name == "pass"
        written.append(record)

    with patch.object(meter, "METER", Meter(clock.clock())), patch.object(cost_files, "write", write):
        yield clock, written


class Reads(Step):
    """Makes batches of a unit: (spent before, rows) each, and spends ``after`` at the end."""

    def __init__(self, clock: Time, batches: list[tuple[int, int]], after: int) -> None:
        self._clock, self._batches, self._after = clock, batches, after

    def work(self, unit: str) -> Iterator[pa.RecordBatch]:
        yield from numbered(unit, self._made(), EMPTY)

    def _made(self) -> Iterator[pa.RecordBatch]:
        for spent, rows in self._batches:
            self._clock.spend(spent)
            yield pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})
        self._clock.spend(self._after)


class Marks(Step):
    """Spends before and after every batch that it returns."""

    def __init__(self, clock: Time, name: str, before: int, after: int) -> None:
        self._clock, self._name, self._before, self._after = clock, name, before, after
        self.fails = False

    def stage_name(self) -> str:
        return self._name

    def work(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._clock.spend(self._before)
        if self.fails:
            raise OSError("no more")
        yield batch
        self._clock.spend(self._after)


class Writes(Step):
    """Spends on every batch, and commits a unit at its last."""

    def __init__(self, clock: Time, spent: int) -> None:
        self._clock, self._spent = clock, spent

    def work(self, batch: pa.RecordBatch) -> Iterator[Any]:
        self._clock.spend(self._spent)
        metadata = batch.schema.metadata
        if metadata[b"headrace.last"] == b"1":
            meter.commit(None, "pass", metadata[b"headrace.unit"].decode(), "digest")  # type: ignore[arg-type]
            self._clock.spend(1_000_000)
        yield from ()


def run(steps: list[Step], element: Any, between: Callable[[Any], Any] = lambda element: element) -> None:
    """Drive DoFns as a fused runner does: every output goes through all that follows before the next is asked for."""
    for output in steps[0].process(element):
        run(steps[1:], between(output), between)


spent = st.integers(0, 50)


@settings(deadline=None)
@given(
    batches=st.lists(st.tuples(spent, st.integers(0, 3)), max_size=5),
    stages=st.lists(st.tuples(spent, spent), max_size=4),
    write=spent,
    rest=st.integers(0, 9),
)
def test_every_stage_is_charged_what_it_spends_itself(
    batches: list[tuple[int, int]], stages: list[tuple[int, int]], write: int, rest: int
) -> None:
    with metered() as (clock, written):
        marks = [Marks(clock, f"stage_{i}", before, after) for i, (before, after) in enumerate(stages)]
        steps: list[Step] = [Reads(clock, batches, after=7), *marks, Writes(clock, write)]

        def runner(element: Any) -> Any:
            clock.spend(rest)
            return element

        for unit in ("a", "b", "c"):
            run(steps, unit, runner)
    assert [record.unit for record in written] == ["a", "b", "c"]
    times, rows = max(1, len(batches)), sum(rows for _, rows in batches)
    for record in written:
        assert list(record.stages) == ["reads", *(f"stage_{i}" for i in range(len(stages))), "writes"]
        ns = {name: cost.cpu_ns // 10 for name, cost in record.stages.items()}
        assert ns["reads"] == sum(before for before, _ in batches) + 7
        for i, (before, after) in enumerate(stages):
            # What a stage spends after the last batch of a unit comes too late for its record.
            assert ns[f"stage_{i}"] == times * before + (times - 1) * after
        assert ns["writes"] == times * write
        assert all(cost.wall_ns == 10 * cost.cpu_ns for cost in record.stages.values())
        assert {cost.rows_in for name, cost in record.stages.items() if name != "reads"} == {rows}
        assert record.stages["reads"].rows_out == rows
        assert {name: cost.calls for name, cost in record.stages.items()} == {
            name: 1 if name == "reads" else times for name in record.stages
        }


def test_batches_that_go_through_a_coder_to_other_workers_carry_their_costs() -> None:
    coder = RecordBatchCoder()
    records = []
    for between in (lambda batch: batch, lambda batch: coder.decode(coder.encode(batch))):
        with metered() as (clock, written):
            run([Reads(clock, [(3, 1), (4, 2)], 0), Marks(clock, "mark", 5, 0), Writes(clock, 6)], "u", between)
        records.append(written[0].stages)
    assert records[0] == records[1]
    # No DoFn but the last keeps anything: the costs are with the batches.
    with metered() as (clock, _):
        reads = Reads(clock, [(3, 1)], 0)
        (batch,) = reads.process("u")
        assert COSTS in batch.schema.metadata
        assert list(reads._books()[0].costs.values()) == [Cost()]


def test_what_an_attempt_spent_that_failed_is_in_no_record() -> None:
    with metered() as (clock, written):
        mark = Marks(clock, "mark", 5, 0)
        steps = [Reads(clock, [(3, 1), (4, 2)], 0), mark, Writes(clock, 6)]
        run(steps, "u")
        # The first batch gets to the writer, the second does not.
        batches = list(steps[0].process("u"))
        run(steps[1:], batches[0])
        mark.fails = True
        with pytest.raises(OSError, match="no more"):
            run(steps[1:], batches[1])
        assert len(written) == 1
        mark.fails = False
        run(steps, "u")
        run(steps, "v")
    assert written[0].stages == written[1].stages == written[2].stages


def test_a_users_own_batches_are_returned_as_they_are() -> None:
    with metered() as (clock, _):
        own = pa.RecordBatch.from_pydict({"n": [1]}, metadata={"own": "metadata"})
        for batch in (own, own.replace_schema_metadata(None)):
            (output,) = Marks(clock, "mark", 1, 1).process(batch)
            assert output is batch


Tree = tuple[int, list[Any]]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(st.integers(0, 9), st.just([])), lambda inner: st.tuples(st.integers(0, 9), st.lists(inner, max_size=3))
)


@settings(deadline=None)
@given(trees)
def test_a_stage_inside_another_is_measured_apart(tree: Tree) -> None:
    expected: dict[str, int] = {}

    def work(node: Tree, depth: int) -> None:
        own, inner = node
        name = f"depth_{depth}"
        expected[name] = expected.get(name, 0) + own * (len(inner) + 1)
        with meter.measured(name):
            clock.spend(own)
            for child in inner:
                work(child, depth + 1)
                clock.spend(own)
            if depth == 0:
                meter.commit(None, "pass", "u", "digest")  # type: ignore[arg-type]

    with metered() as (clock, written):
        work(tree, 0)
        total = clock.ns
        assert meter.METER.top is None
        assert meter.METER.threads == 0
    found = {name: cost.cpu_ns // 10 for name, cost in written[0].stages.items()}
    assert found == expected
    assert sum(found.values()) == total


def test_a_thread_that_is_not_alone_is_measured_by_its_own_clock() -> None:
    with metered() as (clock, written):

        def other() -> None:
            with meter.measured("other"):
                clock.spend(1)

        def charged(meets: bool) -> tuple[int, int]:
            with meter.measured("mine"):
                clock.spend(5)
                if meets:
                    thread = threading.Thread(target=other)
                    thread.start()
                    thread.join()
                clock.spend(5)
                meter.commit(None, "pass", "u", "digest")  # type: ignore[arg-type]
            cost = written[-1].stages["mine"]
            return cost.cpu_ns, cost.thread_ns

        assert charged(meets=False) == (10 * 10, 0)
        assert charged(meets=True) == (11, 11)
        assert charged(meets=False) == (10 * 10, 0)
        assert meter.METER.threads == 0


def test_threads_of_a_library_are_charged_to_the_stage_that_waits_for_them(tmp_path: Path) -> None:
    used: list[float] = []

    def native() -> None:
        before = time.thread_time()
        hashlib.sha256(bytes(20_000_000)).digest()
        used.append(time.thread_time() - before)

    store = Store(tmp_path)
    with meter.measured("hash"):
        thread = threading.Thread(target=native)
        thread.start()
        thread.join()
        meter.commit(store, "pass", "u", "digest")
    found = cost_files.read(store)["pass"].column("cpu_ns").to_pylist()
    assert found[0] >= used[0] * 1e9


def test_rows_that_come_in_no_batch_can_be_noted() -> None:
    with metered() as (_, written), meter.measured("keys"):
        meter.note(rows=3, nbytes=48)
        meter.note(rows=2)
        meter.commit(None, "pass", "u", "digest", is_shared=True)  # type: ignore[arg-type]
    cost = written[0].stages["keys"]
    assert (cost.calls, cost.rows_in, cost.bytes, written[0].is_shared) == (1, 5, 48, True)


def test_where_nothing_is_measured_nothing_is_noted_or_written(tmp_path: Path) -> None:
    meter.note(rows=1)
    meter.commit(Store(tmp_path), "pass", "u", "digest")
    assert list(tmp_path.iterdir()) == []


def test_measuring_around_a_yield_is_refused() -> None:
    class Around(Step):
        def work(self, element: Any) -> Iterator[Any]:
            with meter.measured("inside"):
                yield element

    with metered():
        results = Around().process("u")
        with pytest.raises(AssertionError, match="a stage inside around was measured around a yield"):
            next(results)
        del results
        gc.collect()
        assert meter.METER.top is None
        assert meter.METER.threads == 0


def test_a_store_that_fails_costs_the_record_and_not_the_unit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Store):
        def write_bytes(self, path: str, data: bytes) -> None:
            raise RuntimeError("a handler's own kind of error")

    with meter.measured("work"):
        meter.commit(Failing(tmp_path), "pass", "u", "digest")
    assert "costs of unit u of pass pass are not kept: RuntimeError" in caplog.text


def test_the_peak_is_of_the_unit_where_the_system_lets_it_be(tmp_path: Path) -> None:
    def peak(megabytes: int) -> dict[str, Any]:
        store = Store(tmp_path)
        with meter.measured("work"):
            held = bytearray(megabytes << 20)
            held[::4096] = b"x" * len(held[::4096])
            del held
            meter.commit(store, "pass", "u", "digest")
        row: dict[str, Any] = cost_files.read(store)["pass"].to_pylist()[0]
        return row

    large, small = peak(256), peak(0)
    assert large["peak_bytes"] >= 256 << 20
    if small["is_peak_of_unit"]:
        assert small["peak_bytes"] <= large["peak_bytes"] - (128 << 20)
    with patch.object(meter, "_reset_peak", return_value=False):
        assert not peak(0)["is_peak_of_unit"]


def test_the_time_of_children_that_have_ended_is_the_process_s() -> None:
    before = Clock().process_ns()
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-S", "-c", spin], check=True)
    assert Clock().process_ns() - before >= 0.3e9
