"""Writing back-off n-gram models in ARPA's text format, the one that KenLM and every other toolkit reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from stages.jit import kernel

DECIMALS: Final = 7
"""Digits after the point: half a unit of the last is 5e-8, below what the float32 of readers keeps."""

_SLICE_BYTES = 4 << 20
_SCALE = 10**DECIMALS
# Tab or space after every word, a line feed, and two numbers of at most sign, 19 digits, point and tab.
_NUMBER_BYTES = 22
_ZERO, _POINT, _MINUS = 48, 46, 45
_TAB, _FEED, _SPACE = 9, 10, 32


@dataclass(frozen=True, eq=False)
class NgramTable:
    """The n-grams of one order with their parameters.

    Attributes:
        words: uint32 array of shape (m, order), word ids, first word first.
        log10_prob: float64 array of shape (m,), at most 0.
        log10_backoff: float64 array of shape (m,), at most 0; None for the highest order, which has none.
    """

    words: npt.NDArray[np.uint32]
    log10_prob: npt.NDArray[np.float64]
    log10_backoff: npt.NDArray[np.float64] | None


def write_arpa(file: BinaryIO, words: Sequence[str], tables: Sequence[NgramTable]) -> None:
    """Write a model to an open binary ``file``: ``words`` by id, and a table for each order, row by row.

    Words are written as UTF-8, with ``surrogateescape`` undone. Numbers have ``DECIMALS`` digits after the point.
    Takes extra memory for a copy of the vocabulary and a few MB.

    Raises:
        ValueError: if a table's probability or back-off is not a finite number of at most 0.
    """
    encoded = [word.encode("utf-8", "surrogateescape") for word in words]
    lengths = np.array([len(word) for word in encoded], np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    spelling = np.frombuffer(b"".join(encoded), np.uint8)
    header = "".join(f"ngram {order}={len(table.words)}\n" for order, table in enumerate(tables, 1))
    file.write(f"\\data\\\n{header}".encode())
    for order, table in enumerate(tables, 1):
        file.write(f"\n\\{order}-grams:\n".encode())
        _write_rows(file, table, spelling, starts, lengths)
    file.write(b"\n\\end\\\n")


def _write_rows(
    file: BinaryIO,
    table: NgramTable,
    spelling: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    order = table.words.shape[1]
    longest = order * (int(lengths.max(initial=0)) + 1) + 2 * _NUMBER_BYTES
    step = min(max(_SLICE_BYTES // (order * 12 + 2 * _NUMBER_BYTES), 1), len(table.words) or 1)
    for low in range(0, len(table.words), step):
        rows = table.words[low : low + step]
        prob = _fixed_point(table.log10_prob[low : low + step])
        backoff = np.empty(0, np.int64)
        if table.log10_backoff is not None:
            backoff = _fixed_point(table.log10_backoff[low : low + step])
        done = 0
        size = int(lengths[rows].sum()) + len(rows) * (order + 2 * _NUMBER_BYTES)
        buffer = np.empty(min(size, _SLICE_BYTES + longest), np.uint8)
        while done < len(rows):
            done, end = _format(buffer, rows, prob, backoff, spelling, starts, done)
            file.write(buffer[:end].data)


def _fixed_point(log10: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return -``log10`` as a whole number of units of the last decimal."""
    if not (np.isfinite(log10) & (log10 <= 0)).all():
        worst = log10[~(np.isfinite(log10) & (log10 <= 0))][0]
        raise ValueError(f"a log10 probability or back-off of {worst} cannot be written to an ARPA file")
    return np.rint(log10 * -_SCALE).astype(np.int64)


@kernel
def _put_number(buffer: npt.NDArray[np.uint8], at: int, number: int) -> int:
    if number == 0:
        buffer[at] = _ZERO
        return at + 1
    buffer[at] = _MINUS
    at += 1
    whole, digits = number // _SCALE, 1
    rest = whole // 10
    while rest:
        digits += 1
        rest //= 10
    for i in range(digits - 1, -1, -1):
        buffer[at + i] = _ZERO + whole % 10
        whole //= 10
    at += digits
    buffer[at] = _POINT
    part = number % _SCALE
    for i in range(DECIMALS, 0, -1):
        buffer[at + i] = _ZERO + part % 10
        part //= 10
    return at + 1 + DECIMALS


@kernel
def _format(
    buffer: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.uint32],
    prob: npt.NDArray[np.int64],
    backoff: npt.NDArray[np.int64],
    spelling: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    row: int,
) -> tuple[int, int]:
    """Write lines from ``row`` on while the next one fits; return (first row not written, bytes written)."""
    order = rows.shape[1]
    at = 0
    while row < len(rows):
        size = order + 2 * _NUMBER_BYTES
        for i in range(order):
            size += starts[rows[row, i] + 1] - starts[rows[row, i]]
        if at + size > len(buffer):
            break
        at = _put_number(buffer, at, prob[row])
        for i in range(order):
            buffer[at] = _SPACE if i else _TAB
            at += 1
            for j in range(starts[rows[row, i]], starts[rows[row, i] + 1]):
                buffer[at] = spelling[j]
                at += 1
        if len(backoff):
            buffer[at] = _TAB
            at = _put_number(buffer, at + 1, backoff[row])
        buffer[at] = _FEED
        at += 1
        row += 1
    return row, at
