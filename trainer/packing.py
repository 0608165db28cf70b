"""Packing spans of documents into rows of one context length. Reads lengths only, never tokens.

Best-fit decreasing (Ding et al., "Fewer truncations improve language modeling", arXiv 2404.10830): a document that fits
into a row is never cut; a longer one is cut into whole rows and one remainder, which is packed like a short document.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from shards.permute import shuffled

Int64Array = npt.NDArray[np.int64]

_BIN_BITS: Final = 32


@dataclass(frozen=True)
class Spans:
    """Consecutive tokens of documents, each array int64 of shape (spans,).

    Attributes:
        slot: which document, as an index into the group that is packed.
        start: first token in the document.
        length: number of tokens, at least 1.
    """

    slot: Int64Array
    start: Int64Array
    length: Int64Array

    @classmethod
    def whole(cls, lengths: Int64Array) -> Spans:
        """Return the spans of whole documents of these lengths, int64 of shape (documents,)."""
        return cls(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), lengths)

    def take(self, index: npt.NDArray[np.intp] | slice) -> Spans:
        """Return some of the spans."""
        return Spans(self.slot[index], self.start[index], self.length[index])

    def merged(self) -> Spans:
        """Return the same tokens in document order, with spans that touch joined into one."""
        if not len(self.slot):
            return self
        ordered = self.take(np.lexsort((self.start, self.slot)))
        ends = ordered.start + ordered.length
        opens = np.ones(len(ends), np.bool_)
        opens[1:] = (ordered.slot[1:] != ordered.slot[:-1]) | (ordered.start[1:] != ends[:-1])
        first = np.flatnonzero(opens)
        return Spans(ordered.slot[first], ordered.start[first], np.add.reduceat(ordered.length, first))


@dataclass(frozen=True)
class PackedRows:
    """Rows of at most ``context_tokens``; row i is ``spans[offsets[i]:offsets[i + 1]]`` side by side."""

    context_tokens: int
    spans: Spans
    offsets: Int64Array

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def after(self, row: int) -> Spans:
        """Return the spans of this row and all later ones."""
        return self.spans.take(slice(int(self.offsets[row]), None))


def pack(spans: Spans, context_tokens: int, key: int) -> PackedRows:
    """Pack spans into rows and shuffle the rows by ``key``. Every token of ``spans`` is in exactly one row."""
    pieces = _cut(spans, context_tokens)
    row = _assign_rows(pieces.length, context_tokens)
    rows = int(row.max()) + 1 if len(row) else 0
    place = np.empty(rows, np.int64)
    place[shuffled(rows, key)] = np.arange(rows)
    row = place[row]
    # Stable, so that inside a row spans keep the group's (permuted) document order, whatever their lengths.
    order = np.argsort(row, kind="stable")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(row, minlength=rows))])
    return PackedRows(context_tokens, pieces.take(order), offsets)


def _cut(spans: Spans, context_tokens: int) -> Spans:
    """Cut spans longer than a row into whole rows and a remainder, in their order."""
    if not len(spans.length) or int(spans.length.max()) <= context_tokens:
        return spans
    pieces = -(-spans.length // context_tokens)
    parent = np.repeat(np.arange(len(pieces)), pieces)
    number = np.arange(len(parent)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = number * context_tokens
    length = np.minimum(spans.length[parent] - start, context_tokens)
    return Spans(spans.slot[parent], spans.start[parent] + start, length)


def _assign_rows(lengths: Int64Array, context_tokens: int) -> Int64Array:
    """Return the row of each piece by best-fit decreasing, int64 of shape (pieces,)."""
    order = np.argsort(-lengths, kind="stable")
    sizes = lengths[order]
    # No two pieces above half a row share one, so these open a row each, in order and with rising room.
    large = int(np.searchsorted(-sizes, -(context_tokens // 2)))
    assigned = np.empty(len(sizes), np.int64)
    assigned[:large] = np.arange(large)
    room = context_tokens - sizes[:large]
    # Room and row number of every row with room left, in one integer: one sorted list answers "the tightest that fits".
    gaps: list[int] = ((room << _BIN_BITS) | np.arange(large))[room > 0].tolist()
    rows = large
    ends = np.append(np.flatnonzero(np.diff(sizes[large:])) + 1, len(sizes) - large) + large
    at = large
    for end in ends.tolist() if large < len(sizes) else []:
        size = int(sizes[at])
        least = size << _BIN_BITS
        while at < end:
            # Best fit puts pieces of one size into the same row until none fits there, so they go together.
            index = bisect_left(gaps, least)
            if index < len(gaps):
                gap = gaps.pop(index)
                left, row = gap >> _BIN_BITS, gap & ((1 << _BIN_BITS) - 1)
            else:
                left, row = context_tokens, rows
                rows += 1
            count = min(end - at, left // size)
            assigned[at : at + count] = row
            at += count
            if left > count * size:
                insort(gaps, (left - count * size) << _BIN_BITS | row)
    result = np.empty_like(assigned)
    result[order] = assigned
    return result
