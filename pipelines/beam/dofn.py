"""The base of headrace's own DoFns: what they cost is measured, and an error that a person can fix arrives as raised.

A runner turns what a DoFn raises into text, and the type, the place and the remedy are lost. In a local process the
error is therefore noted before it is handed to Beam, and ``run_in_memory`` raises the noted one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics.metric import Metrics

from pipelines.beam import meter
from pipelines.cost_files import Cost
from shards.errors import UserError

_noted: list[BaseException] = []
_END = object()


class Step(beam.DoFn):
    """A DoFn that does ``work`` on each element, measured by ``pipelines.beam.meter``."""

    _measured: tuple[meter.Account, _Counters]

    def work(self, element: Any) -> Iterator[Any]:
        """Return what an element becomes."""
        raise NotImplementedError("a step says what its work is")

    def stage_name(self) -> str:
        """Return its name in costs and on dashboards: its class's, ``_ReadText`` being ``read_text``."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__.lstrip("_")).lower()

    def size_of(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Return the rows and bytes of a batch that the stage works on, or has made."""
        return int(batch.num_rows), int(batch.nbytes)

    def process(self, element: Any) -> Iterator[Any]:
        """Do the work, measure it, and note what goes wrong."""
        account, counters = self._books()
        account.receive(element)
        is_batch = isinstance(element, pa.RecordBatch)
        cost = Cost(calls=1)
        if is_batch:
            cost.rows_in, cost.bytes = self.size_of(element)
        else:
            meter.METER.begin_unit()
        stage = self.stage_name()
        account.of(stage).add(cost)
        window = meter.Window(meter.METER, account, stage)
        results = self._results(element)
        try:
            while True:
                with window:
                    output = next(results, _END)
                if output is _END:
                    break
                if isinstance(output, pa.RecordBatch):
                    # What the next stage is given: its bytes are of interest only where the first stage made them.
                    made = Cost(rows_out=output.num_rows, bytes=0 if is_batch else self.size_of(output)[1])
                    account.of(stage).add(made)
                    cost.add(made)
                yield account.hand_on(output)
        except (UserError, OSError, MemoryError, KeyboardInterrupt) as error:
            _noted.append(error)
            raise
        counters.add(cost, window.cpu_ns)

    def _results(self, element: Any) -> Iterator[Any]:
        # Lazy, so that work which is not a generator is measured too.
        yield from self.work(element)

    def _books(self) -> tuple[meter.Account, _Counters]:
        # Not made in __init__, which subclasses need not call.
        if "_measured" not in self.__dict__:
            self._measured = (meter.Account(), _Counters(self.stage_name()))
        return self._measured


class _Counters:
    """A stage's counters in Beam: for dashboards only, because some runners count attempts that failed too."""

    def __init__(self, stage: str) -> None:
        self._cpu_ms, self._rows, self._bytes = (
            Metrics.counter("headrace", f"{stage}.{what}") for what in ("cpu_ms", "rows", "bytes")
        )
        self._rest_ns = 0

    def add(self, cost: Cost, cpu_ns: int) -> None:
        """Count one element; what is less than a millisecond waits for the next."""
        cpu_ms, self._rest_ns = divmod(self._rest_ns + cpu_ns, 1_000_000)
        self._cpu_ms.inc(cpu_ms)
        self._rows.inc(cost.rows_in or cost.rows_out)
        self._bytes.inc(cost.bytes)


def take_noted() -> BaseException | None:
    """Return the first error noted in this process since the last call, None if there was none."""
    found = _noted[0] if _noted else None
    _noted.clear()
    return found
