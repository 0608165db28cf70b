"""A pass over documents that kill, in a module that worker processes can import."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import apache_beam as beam
import pyarrow as pa

from pipelines.beam.apply import Apply
from pipelines.beam.attempts import Attempts
from pipelines.beam.base import BeamPass, Builder, Inputs
from pipelines.beam.dofn import Step
from pipelines.beam.isolation import isolate
from pipelines.beam.units import UnitSink, UnitWriter, numbered
from pipelines.beam.work_list import Unit
from pipelines.workspace import Job
from stages.base import Stage
from tests.pipelines.beam.killers import Killer, documents

UNITS = {
    "a": ["a text", "!kill", "12", "ab"],
    "b": ["another text", "ab"],
    "c": ["!abort", "a text", "!raise", "!segv"],
    "d": ["!panic", "12"],
    "e": ["a text"],
}


@dataclass(frozen=True)
class Marking(BeamPass):
    """Marks the documents of ``UNITS``."""

    name: ClassVar[str] = "marking"
    calls_native: ClassVar[bool] = True

    def units(self, inputs: Inputs) -> list[str]:
        return list(UNITS)

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        return map(Unit, pending)

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        return functools.partial(_add_marking, job)


def _add_marking(job: Job, units: Any) -> None:
    _ = (
        units
        | "read" >> beam.ParDo(_Read(job)).with_output_types(pa.RecordBatch)
        | Apply(cast(Stage, Killer()))
        | "write" >> beam.ParDo(_Write(job))
    )


class _Read(Step):
    def __init__(self, job: Job) -> None:
        self._job = job

    def work(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        batch = documents(UNITS[unit.name])
        with Attempts(self._job.store, self._job.pass_name).during(unit.name) as isolated:
            batches = [batch.slice(row, 2) for row in range(0, len(batch), 2)]
            threaded = numbered(unit.name, batches, batch.slice(0, 0))
            yield from isolate(threaded) if isolated else threaded


class _Write(UnitWriter):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job

    def open_sink(self, unit: str) -> UnitSink:
        return _Sink(self._job, unit)


class _Sink(UnitSink):
    def __init__(self, job: Job, unit: str) -> None:
        self._job, self._unit, self._rows = job, unit, list[Any]()

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.select(["text", "dropped_by", "reason", "failed", "detail"]).to_pylist()

    def commit(self, closing: Any) -> None:
        data = json.dumps(self._rows).encode()
        entry = self._job.store.publish_bytes(data, "marking/rows", self._unit, ".json", len(self._rows))
        self._job.commit(self._unit, {"rows": entry})

    def abandon(self) -> None:
        self._rows = []
