"""What the work costs: CPU, rows, bytes and memory by stage and unit, measured beside the data and in no digest.

In a fused pipeline the DoFns of a unit run in one thread, each inside the ``yield`` of the one before. So a DoFn is
timed while it makes its next element and at no other time: that is its own CPU, without what comes after it. What it
cost travels on in the metadata of the batch that it returns, and the DoFn that commits the unit writes the sum. So a
record is whole on any runner, fused or not, and it is of the attempt whose output counts: what fails takes its costs
with it.

CPU is the process's while this thread alone is at work in it, because Arrow and tokenizers compute in threads of their
own, which a thread's clock does not show. Where a runner has several bundles at work in a process it is the thread's,
and the record says so.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines import cost_files
from pipelines.cost_files import COUNTS, Cost, UnitCosts
from shards.store import Store

UNIT, SEQ = b"headrace.unit", b"headrace.seq"
"""Keys in the metadata of a unit's batches: its name, and the batch's number in it."""

COSTS = b"headrace.costs"
"""Key in the metadata of a unit's batches: what was spent since the batch before it, by stage."""


def _process_ns() -> int:
    """Return the CPU time of this process and of all children that have ended: a stage may leave its work to one."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + int(1e9 * (children.ru_utime + children.ru_stime))


class Clock(NamedTuple):
    """Where the time comes from, each in nanoseconds."""

    thread_ns: Callable[[], int] = time.thread_time_ns
    process_ns: Callable[[], int] = _process_ns
    wall_ns: Callable[[], int] = time.perf_counter_ns


class Account:
    """What was spent on a unit and is not yet passed on or written, by stage in chain order."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}

    def of(self, stage: str) -> Cost:
        """Return the cost of a stage, to add to."""
        return self.costs.setdefault(stage, Cost())

    def receive(self, element: Any) -> None:
        """Take the costs that came with an element; one that begins a unit ends what is left of the last."""
        metadata = _metadata(element)
        if UNIT not in metadata or metadata.get(SEQ) == b"0":
            self.costs = {}
        if COSTS in metadata:
            for stage, *counts in json.loads(metadata[COSTS]):
                self.of(stage).add(Cost(*counts))

    def hand_on(self, output: Any) -> Any:
        """Return a batch of a unit with all costs so far; anything else as it is: batches of a user's own stay so."""
        metadata = _metadata(output)
        if UNIT not in metadata:
            return output
        costs = [[stage, *(getattr(cost, name) for name in COUNTS)] for stage, cost in self.costs.items()]
        self.costs = {}
        return output.replace_schema_metadata({**metadata, COSTS: json.dumps(costs)})


def _metadata(element: Any) -> dict[bytes, bytes]:
    return (element.schema.metadata or {}) if isinstance(element, pa.RecordBatch) else {}


class Meter:
    """Measures the stages at work in this process. There is one, ``METER``; tests make their own with another clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self._lock = threading.Lock()
        self._here = threading.local()
        self.threads = 0
        """Threads that measure at the moment."""
        self.meetings = 0
        """How often one began while another was at it."""
        self._is_peak_of_unit = False

    @property
    def top(self) -> Window | None:
        """The innermost window that is open in this thread."""
        return getattr(self._here, "top", None)

    def show(self, window: Window | None) -> None:
        """Make a window the innermost of this thread, None for none."""
        before = self.top
        self._here.top = window
        if (before is None) is not (window is None):
            with self._lock:
                self.threads += 1 if before is None else -1
                self.meetings += before is None and self.threads > 1

    def begin_unit(self) -> None:
        """Measure the peak of memory from here, where the system lets a process do so."""
        self._is_peak_of_unit = _reset_peak()

    @contextlib.contextmanager
    def measured(self, stage: str) -> Iterator[None]:
        """Measure the body as a stage, such as a pass in the driver; inside another, apart from it.

        Never around a ``yield``: what follows it in the pipeline would be measured as well.
        """
        if (outer := self.top) is None:
            self.begin_unit()
        account = Account() if outer is None else outer.account
        account.of(stage).calls += 1
        with Window(self, account, stage):
            yield

    def note(self, *, rows: int = 0, nbytes: int = 0) -> None:
        """Add rows and bytes that the stage at work was given in another form than a batch."""
        if (window := self.top) is not None:
            window.account.of(window.stage).add(Cost(rows_in=rows, bytes=nbytes))

    def commit(self, store: Store, pass_name: str, unit: str, digest: str, *, is_shared: bool = False) -> None:
        """Write what the unit at work has cost, right after its marker. A failure is logged, never raised.

        Called where nothing is measured, it does nothing.

        Args:
            store: the run's.
            pass_name: the pass.
            unit: the unit; for work before a shuffle, any name that the same work has again in another attempt.
            digest: the digest of the pass.
            is_shared: whether it is work before a shuffle, which no unit owns.
        """
        if (window := self.top) is None:
            return
        window.stop()
        window.start()
        record = UnitCosts(unit, digest, is_shared, _peak_bytes(), self._is_peak_of_unit, window.account.costs)
        window.account.costs = {}
        cost_files.write(store, pass_name, record)


class Window:
    """The time in which a stage is at work. Opened inside another in its thread, it stops that one; opened again, it
    goes on.
    """

    def __init__(self, meter: Meter, account: Account, stage: str) -> None:
        self._meter, self.account, self.stage = meter, account, stage
        self.cpu_ns = 0
        """CPU so far, whatever the account has handed on of it."""
        self._outer: Window | None = None

    def __enter__(self) -> Window:
        self._outer = self._meter.top
        if self._outer is not None:
            self._outer.stop()
        self._meter.show(self)
        self.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        is_innermost = self._meter.top is self
        if not is_innermost and not self._is_open():
            # Left open by a ``yield``, and ended with the one around it, which has said so.
            return
        self.stop()
        self._meter.show(self._outer)
        if self._outer is not None:
            self._outer.start()
        if not is_innermost and error is None:
            raise AssertionError(f"a stage inside {self.stage} was measured around a yield")

    def _is_open(self) -> bool:
        window = self._meter.top
        while window is not None and window is not self:
            window = window._outer
        return window is self

    def start(self) -> None:
        """Start the clocks."""
        meter = self._meter
        self._is_alone, self._meetings = meter.threads == 1, meter.meetings
        self._process_ns, self._thread_ns = meter.clock.process_ns(), meter.clock.thread_ns()
        self._wall_ns = meter.clock.wall_ns()

    def stop(self) -> None:
        """Charge the time since the start to the stage."""
        clock, cost = self._meter.clock, self.account.of(self.stage)
        cost.wall_ns += clock.wall_ns() - self._wall_ns
        if self._is_alone and self._meetings == self._meter.meetings:
            cpu_ns = clock.process_ns() - self._process_ns
        else:
            cpu_ns = clock.thread_ns() - self._thread_ns
            cost.thread_ns += cpu_ns
        cost.cpu_ns += cpu_ns
        self.cpu_ns += cpu_ns


def _reset_peak() -> bool:
    """Let the peak of this process's memory begin at what it holds now; return whether the system did."""
    try:
        with open("/proc/self/clear_refs", "wb") as file:
            file.write(b"5")
    except OSError:
        return False
    return True


def _peak_bytes() -> int:
    """Return the most memory that this process has held: since ``_reset_peak`` where that works, else ever."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


METER = Meter()


def measured(stage: str) -> contextlib.AbstractContextManager[None]:
    """Measure the body as a stage: see :meth:`Meter.measured`."""
    return METER.measured(stage)


def note(*, rows: int = 0, nbytes: int = 0) -> None:
    """Add rows and bytes to the stage at work: see :meth:`Meter.note`."""
    METER.note(rows=rows, nbytes=nbytes)


def commit(store: Store, pass_name: str, unit: str, digest: str, *, is_shared: bool = False) -> None:
    """Write what the unit at work has cost: see :meth:`Meter.commit`."""
    METER.commit(store, pass_name, unit, digest, is_shared=is_shared)
