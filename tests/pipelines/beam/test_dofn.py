from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines import cost_files
from pipelines.beam import meter
from pipelines.beam.dofn import Step, take_noted
from pipelines.beam.units import numbered
from shards.errors import UserError
from shards.store import Store

EMPTY = pa.RecordBatch.from_pydict({"n": pa.array([], pa.int64())})
ROWS = {"a": [5, 3], "b": [], "c": [1]}


class _ReadText(Step):
    def work(self, unit: str) -> Iterator[pa.RecordBatch]:
        batches = (pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())}) for rows in ROWS[unit])
        yield from numbered(unit, batches, EMPTY)


class _Square(Step):
    def work(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        # Not a generator, and so computed when it is called.
        return iter([batch.set_column(0, "n", pa.array([n * n for n in batch.column("n").to_pylist()], pa.int64()))])


class _Commit(Step):
    def __init__(self, root: str) -> None:
        self._root = root

    def work(self, batch: pa.RecordBatch) -> Iterator[Any]:
        if batch.schema.metadata[b"headrace.last"] == b"1":
            meter.commit(Store(self._root), "pass", batch.schema.metadata[b"headrace.unit"].decode(), "digest")
        yield from ()


class _Raises(Step):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def work(self, element: Any) -> Iterator[Any]:
        raise self._error
        yield


def test_units_of_one_bundle_have_a_record_each_and_beam_counts_the_same(tmp_path: Path) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    batches = pipeline | beam.Create(list(ROWS), reshuffle=False) | beam.ParDo(_ReadText())
    _ = batches | beam.ParDo(_Square()).with_output_types(pa.RecordBatch) | beam.ParDo(_Commit(str(tmp_path)))
    result = pipeline.run()
    result.wait_until_finish()

    table = cost_files.read(Store(tmp_path))["pass"].sort_by([("unit", "ascending"), ("position", "ascending")])
    assert table.select(["unit", "stage"]).to_pylist() == [
        {"unit": unit, "stage": stage} for unit in ROWS for stage in ("read_text", "square", "commit")
    ]
    for row in table.to_pylist():
        assert row["cpu_ns"] > 0
        assert row["calls"] == (1 if row["stage"] == "read_text" else max(1, len(ROWS[row["unit"]])))
        assert row["rows_in"] == (0 if row["stage"] == "read_text" else sum(ROWS[row["unit"]]))
        assert row["rows_out"] == (0 if row["stage"] == "commit" else sum(ROWS[row["unit"]]))
        assert row["bytes"] == 8 * sum(ROWS[row["unit"]])
    counted = {metric.key.metric.name: metric.committed for metric in result.metrics().query()["counters"]}
    for stage in ("read_text", "square", "commit"):
        assert counted[f"{stage}.rows"] == sum(map(sum, ROWS.values()))
        assert counted[f"{stage}.bytes"] == 8 * sum(map(sum, ROWS.values()))


def test_beam_counts_whole_milliseconds_and_loses_no_part_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: dict[str, int] = {}

    class Counter:
        def __init__(self, namespace: str, name: str) -> None:
            assert namespace == "headrace"
            self._name = name

        def inc(self, by: int) -> None:
            counted[self._name] = counted.get(self._name, 0) + by

    now = iter(range(0, 10**9, 300_000))
    ticks = meter.Clock(thread_ns=lambda: 0, process_ns=lambda: next(now), wall_ns=lambda: 0)
    monkeypatch.setattr("pipelines.beam.dofn.Metrics.counter", Counter)
    monkeypatch.setattr(meter, "METER", meter.Meter(ticks))
    square = _Square()
    for _ in range(10):
        # Two windows, one for the output and one for the end, of 0.3 ms each.
        list(square.process(EMPTY))
    assert counted["square.cpu_ms"] == 6


def test_a_stage_is_named_after_its_class() -> None:
    assert [step.stage_name() for step in (_ReadText(), _Square(), Step())] == ["read_text", "square", "step"]


def test_an_error_that_a_person_can_fix_is_noted_as_it_was_raised() -> None:
    take_noted()
    for error in (UserError("wrong", remedy="right"), OSError("disk full"), ValueError("a fault of the code")):
        with pytest.raises(type(error)):
            list(_Raises(error).process("u"))
    noted = take_noted()
    assert isinstance(noted, UserError)
    assert noted.remedy == "right"
    assert take_noted() is None
