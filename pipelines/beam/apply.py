"""``Apply(stage)``: any stage as a Beam transform, in headrace's own passes and in a pipeline of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.metrics.metric import Metrics

from pipelines.beam import coder
from pipelines.beam.dofn import Step
from pipelines.beam.isolation import mark
from shards.schema import TEXT_COLUMNS
from stages.base import Stage, link_of
from stages.marking import live_mask

coder.register()


class Apply(beam.PTransform[Any, Any]):
    """Marks batches with a stage's verdict: ``batches | Apply(Language(keep=("en",)))``.

    Takes and gives a PCollection of ``pyarrow.RecordBatch`` with the columns of ``shards.schema.DOCUMENT``, one batch
    for one batch. Rows dropped by the stage stay, marked in ``dropped_by`` and ``reason``.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(label=link_of(stage))
        self._stage = stage

    def expand(self, batches: Any) -> Any:
        """Apply the stage to every batch."""
        return batches | "mark" >> beam.ParDo(_Mark(self._stage)).with_output_types(pa.RecordBatch)


class _Mark(Step):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def stage_name(self) -> str:
        return link_of(self._stage)

    def size_of(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Return how many rows the stage judges, and the bytes of their text and payload: it never sees the others."""
        live = live_mask(self._stage, batch)
        mask = pa.array(live)
        columns = [batch.column(name) for name in TEXT_COLUMNS if name in batch.schema.names]
        return int(live.sum()), sum(pc.sum(pc.binary_length(column).filter(mask)).as_py() or 0 for column in columns)

    def work(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        name, marked = link_of(self._stage), mark(self._stage, batch)
        # Counters are for dashboards only: some runners count attempts. The verdict table is what statistics come from.
        before, after = batch.column("dropped_by").null_count, marked.column("dropped_by").null_count
        Metrics.counter("headrace", f"{name}.seen").inc(before)
        Metrics.counter("headrace", f"{name}.kept").inc(after)
        if after < before:
            mine = pc.equal(marked.column("dropped_by"), name).fill_null(False)
            for item in pc.value_counts(marked.column("reason").filter(mine)).to_pylist():
                Metrics.counter("headrace", f"{name}.{item['values']}").inc(item["counts"])
        yield marked
