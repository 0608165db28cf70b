"""Packing spans of documents into rows of one context length. Only lengths are read, never tokens.

This is best-fit decreasing (Ding et al., "Fewer truncations improve language modeling", arXiv 2404.10830): a document
that fits in a row is never cut; a longer one is cut into whole rows and a remainder, which is packed like a document.
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
    """Runs of consecutive tokens of documents; each array is int64 of shape (spans,).

    Attributes:
        slot: the document, as an index into the group that is packed.
        start: first token in the document.
        length: number of tokens, at least 1.
    """

    slot: Int64Array
    start: Int64Array
    length: Int64Array

    @classmethod
    def whole(cls, lengths: Int64Array) -> Spans:
        """Return whole documents as spans, given their lengths, int64 of shape (documents,)."""
        return cls(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), lengths)

    def take(self, index: npt.NDArray[np.intp] | slice) -> Spans:
        """Return some of the spans."""
        return Spans(self.slot[index], self.start[index], self.length[index])

    def merged(self) -> Spans:
        """Return the same tokens in document order, with adjacent spans joined."""
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
    """Rows of at most ``context_tokens``: row i holds ``spans[offsets[i]:offsets[i + 1]]`` side by side."""

    context_tokens: int
    spans: Spans
    offsets: Int64Array

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def after(self, row: int) -> Spans:
        """Return the spans of rows ``row`` and later."""
        return self.spans.take(slice(int(self.offsets[row]), None))


def pack(spans: Spans, context_tokens: int, key: int) -> PackedRows:
    """Pack spans into rows and shuffle the rows by ``key``. Every token of ``spans`` is in exactly one row."""
    pieces = _cut(spans, context_tokens)
    row = _assign_rows(pieces.length, context_tokens)
    rows = int(row.max()) + 1 if len(row) else 0
    place = np.empty(rows, np.int64)
    place[shuffled(rows, key)] = np.arange(rows)
    row = place[row]
    # Stable, so that within a row the spans keep the (permuted) document order of the group, whatever their lengths.
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
    # No two pieces longer than half a row fit in one, so each opens a row, in order and with increasing room.
    large = int(np.searchsorted(-sizes, -(context_tokens // 2)))
    assigned = np.empty(len(sizes), np.int64)
    assigned[:large] = np.arange(large)
    room = context_tokens - sizes[:large]
    # Room and row number of each row with room left, in one integer: a sorted list of them finds the tightest fit.
    gaps: list[int] = ((room << _BIN_BITS) | np.arange(large))[room > 0].tolist()
    rows = large
    ends = np.append(np.flatnonzero(np.diff(sizes[large:])) + 1, len(sizes) - large) + large
    at = large
    for end in ends.tolist() if large < len(sizes) else []:
        size = int(sizes[at])
        least = size << _BIN_BITS
        while at < end:
            # Best fit puts pieces of the same size in one row until no more fit, so they are placed together.
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
