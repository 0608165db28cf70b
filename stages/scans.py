"""Scans: what several stages ask of the same columns, measured once.

A stage declares the scans it reads. ``stages.marking`` measures each for the rows that the first such stage judges,
and hands it to the next, as long as the columns it is made from stay the same. A scan is a pure function of a row, so
whether it was shared cannot be seen in any score; and a stage is shown its own rows alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import failing


@dataclass(frozen=True)
class Scan:
    """A measure of rows that stages share.

    Attributes:
        name: its name.
        needs: the columns it is made from.
        of: returns it, an array of n rows, for a batch of n rows with these columns. The same row gives the same in any
            batch.
        key: what else it depends on, such as lists of words: two scans are one if names and keys are equal.
    """

    name: str
    needs: tuple[str, ...]
    of: Callable[[pa.RecordBatch], pa.Array] = field(compare=False)
    key: Hashable = ()

    @property
    def column(self) -> str:
        """The column in which a stage finds it."""
        return f"scan:{self.name}"


class _Known:
    """What is known of one batch: a scan's values, and for which rows."""

    def __init__(self, rows: int, columns: Sequence[pa.Array]) -> None:
        # The arrays are held, so that their buffers are not another batch's before they are compared.
        self.columns = tuple(columns)
        self.done = np.zeros(rows, np.bool_)
        self.values: pa.Array | None = None


class _Memory(threading.local):
    """The last batch's scans, of this thread."""

    def __init__(self) -> None:
        self.known: dict[Scan, _Known] = {}


_memory = _Memory()


def with_shared(
    asked: Sequence[Scan], batch: pa.RecordBatch, rows: npt.NDArray[np.int64], shown: pa.RecordBatch
) -> pa.RecordBatch:
    """Return ``shown`` with the scans that a stage asks for, as far as they can be had.

    A scan that fails on a row is left out: the stage comes to it again, and to the row at fault.

    Args:
        asked: the stage's scans.
        batch: all rows.
        rows: those that the stage judges, ascending.
        shown: these rows, with the columns that the stage needs.
    """
    for scan in asked:
        try:
            values = _values(scan, batch, rows)
        except BaseException as error:
            forget()
            if isinstance(error, failing.NOT_OF_A_DOCUMENT):
                raise
            return shown
        shown = shown.append_column(scan.column, values)
    return shown


def forget() -> None:
    """Let go of what is known of the last batch."""
    _memory.known.clear()


def _values(scan: Scan, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.Array:
    columns = [batch.column(name) for name in scan.needs]
    known = _memory.known.get(scan)
    if known is None or list(map(_place, known.columns)) != list(map(_place, columns)):
        # Scans of the same columns belong to one batch; of another one nothing is held.
        kept = {other: had for other, had in _memory.known.items() if _is_of(had, columns)}
        known = _Known(batch.num_rows, columns)
        _memory.known = {**kept, scan: known}
    missing = rows[~known.done[rows]]
    if len(missing):
        own = batch.select(list(scan.needs))
        found = scan.of(own if len(missing) == batch.num_rows else own.take(pa.array(missing)))
        known.values = _merged(known, found, missing, batch.num_rows)
        known.done[missing] = True
    assert known.values is not None
    return known.values if len(rows) == batch.num_rows else known.values.take(pa.array(rows))


def _merged(known: _Known, found: pa.Array, rows: npt.NDArray[np.int64], total: int) -> pa.Array:
    if known.values is None and len(rows) == total:
        return found
    had = 0 if known.values is None else len(known.values)
    index = np.arange(total) if had else np.zeros(total, np.int64)
    index[rows] = had + np.arange(len(rows))
    both = pa.concat_arrays([known.values, found]) if known.values is not None else found
    if had:
        return both.take(pa.array(index))
    mask = np.ones(total, np.bool_)
    mask[rows] = False
    return both.take(pa.array(index, mask=mask))


def _is_of(known: _Known, columns: Sequence[pa.Array]) -> bool:
    places = set(map(_place, columns))
    return any(_place(column) in places for column in known.columns)


def _place(column: pa.Array) -> tuple[int | None, ...]:
    """Return where an array's values lie in memory: two arrays of one place are equal while either lives."""
    buffers = (None if buffer is None else buffer.address for buffer in column.buffers())
    return (len(column), column.offset, *buffers)
