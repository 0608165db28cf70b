"""The thread through a passing of text: each batch carries (unit, seq, last) in its schema's metadata.

All batches that come from one root element stay in one bundle, in order, so a writer sees a whole unit. ``UnitWriter``
does not trust that: it fails loudly where the sequence is broken, and publishes only when the last batch is in.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from pipelines.beam import coder
from pipelines.beam.dofn import Step
from pipelines.beam.meter import SEQ, UNIT

coder.register()

_LAST, _CLOSING = b"headrace.last", b"headrace.closing"


def numbered(
    unit: str,
    batches: Iterable[pa.RecordBatch],
    empty: pa.RecordBatch,
    closing: Callable[[], Any] = lambda: None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a unit with their thread.

    Args:
        unit: the unit's name.
        batches: its batches.
        empty: stands for a unit without any.
        closing: what the last batch is to carry to the writer (JSON-able), asked for when all have been taken.
    """
    waiting: pa.RecordBatch | None = None
    seq = 0
    for batch in batches:
        if waiting is not None:
            yield _threaded(waiting, unit, seq, last=False)
            seq += 1
        waiting = batch
    last = _threaded(empty if waiting is None else waiting, unit, seq, last=True)
    yield last.replace_schema_metadata({**last.schema.metadata, _CLOSING: json.dumps(closing())})


def _threaded(batch: pa.RecordBatch, unit: str, seq: int, *, last: bool) -> pa.RecordBatch:
    return batch.replace_schema_metadata({UNIT: unit, SEQ: str(seq), _LAST: str(int(last))})


class UnitSink(ABC):
    """Takes the batches of one unit in order, and makes its files and marker at the end."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take the next batch."""

    @abstractmethod
    def commit(self, closing: Any) -> None:
        """Publish the files, then the marker.

        Args:
            closing: what the reader said last.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Remove what is not published."""


class UnitWriter(Step):
    """Feeds one sink per unit; ``open_sink(unit)`` makes it."""

    def __init__(self) -> None:
        self._sink: UnitSink | None = None
        self._unit = ""
        self._next = 0

    def open_sink(self, unit: str) -> UnitSink:
        """Make the sink of a unit."""
        raise NotImplementedError("a writer says what its sink is")

    def start_bundle(self) -> None:
        """Forget what a failed attempt left."""
        self._give_up()

    def work(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """Write a batch; on the last one, publish and mark."""
        metadata = batch.schema.metadata or {}
        unit, seq, last = metadata[UNIT].decode(), int(metadata[SEQ]), metadata[_LAST] == b"1"
        if self._sink is None and seq == 0:
            self._sink, self._unit, self._next = self.open_sink(unit), unit, 0
        if self._sink is None or unit != self._unit or seq != self._next:
            self._give_up()
            raise RuntimeError(
                f"batch {seq} of {unit} came where batch {self._next} of {self._unit or 'a new unit'} was due: "
                "this runner tore a unit apart, and nothing of it was published"
            )
        self._sink.write(batch)
        self._next += 1
        if last:
            self._sink.commit(json.loads(metadata[_CLOSING]))
            self._give_up()
        yield from ()

    def finish_bundle(self) -> None:
        """Refuse a bundle that ends inside a unit."""
        if self._sink is not None:
            unit = self._unit
            self._give_up()
            raise RuntimeError(f"the bundle ended inside {unit}: nothing of it was published")

    def teardown(self) -> None:
        """Leave nothing behind on a worker whose bundle failed."""
        self._give_up()

    def _give_up(self) -> None:
        if self._sink is not None:
            self._sink.abandon()
        self._sink, self._unit, self._next = None, "", 0
