"""Lines and paragraphs that occur again within a document.

A line ends at a line feed; lines of white space alone separate paragraphs. Two lines, or two paragraphs, are the same
if their text is, white space at its ends aside. Here text is taken away, so more must be equal than where repetition is
measured (``stages.text.repetition``): case and every sign count, and equal hashes are compared byte by byte.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.jit import argument, kernel, mix, subkernel
from stages.text.characters import WHITESPACE, character_table
from stages.text.utf8 import LINE_FEED, decode, utf8_buffers

LINE, PARAGRAPH = 0, 1

Int64s: TypeAlias = npt.NDArray[np.int64]

_PRIME: Final = np.uint64(0x100000001B3)
_SEEDS: Final = (0xCBF29CE484222325, 0x9AE16A3B2F90404F)
_CARRIAGE_RETURN: Final = 0x0D


def find_repeated(
    text: pa.Array, min_chars: int, *, lines: bool, paragraphs: bool
) -> tuple[Int64s, Int64s, Int64s, npt.NDArray[np.int8]]:
    """Find what to take out of each document, so that every line and paragraph of some length stands in it once.

    The first occurrence stays. A line goes with its line feed, the last line of a text without one with the line feed
    before it. A paragraph, or all lines of one, goes with the empty lines before it. So what is left is what was there.

    Args:
        text: string array of n documents; null counts as empty.
        min_chars: shorter ones stay, at least 1; characters are counted without white space.
        lines: whether lines go.
        paragraphs: whether paragraphs go. Lines are looked at in those that stay.

    Returns:
        (row, start, end, ``LINE`` or ``PARAGRAPH``) of m spans that do not touch, or are of different kinds; byte
        offsets into the text of the row. Memory for a document is at most 80 bytes for each of its lines.
    """
    data, bounds = utf8_buffers(text.fill_null("") if text.null_count else text)
    sizes = np.diff(bounds)
    # Each one that goes has so many bytes, and a line feed that none but the last can lack.
    most = int(sizes.sum()) // (min_chars + 1) + len(sizes)
    held = _most_held(data, bounds, min_chars)
    found = np.empty((3, most), np.int64)
    kinds = np.empty(most, np.int8)
    options = np.array([min_chars, lines, paragraphs], np.int64)
    count = _find(data, bounds, character_table(), argument(options), held, found, kinds)
    rows, starts, ends = found[:, :count]
    begin = bounds[rows]
    return rows.copy(), starts - begin, ends - begin, kinds[:count].copy()


@kernel
def _most_held(data: npt.NDArray[np.uint8], bounds: Int64s, min_chars: int) -> int:
    """Return how many lines and paragraphs of one document are remembered at most."""
    most = 0
    for row in range(len(bounds) - 1):
        feeds = 1
        for at in range(bounds[row], bounds[row + 1]):
            feeds += data[at] == LINE_FEED
        most = max(most, min(feeds, (bounds[row + 1] - bounds[row]) // (min_chars + 1) + 1))
    return 2 * most


@kernel
def _find(
    data: npt.NDArray[np.uint8],
    bounds: Int64s,
    table: npt.NDArray[np.uint32],
    options: Int64s,
    held: int,
    found: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
) -> int:
    """Fill ``found`` (row, start, end) and ``kinds``, and return how many spans there are."""
    room = 4
    while room < 2 * held:
        room *= 2
    slots = np.empty(room, np.int32)
    known = np.empty((held, 2), np.int64)
    hashes = np.empty(held, np.uint64)
    count = 0
    for row in range(len(bounds) - 1):
        begin, end = bounds[row], bounds[row + 1]
        size = 4
        while size < 4 * ((end - begin) // (options[0] + 1) + 1) and size < room:
            size *= 2
        slots[:size] = -1
        memory = slots[:size], known, hashes
        first = count
        count = _find_in(data, begin, end, table, options, memory, row, found, kinds, count)
        if count > first and found[2, count - 1] == end and data[end - 1] != LINE_FEED:
            _take_feed_before(data, begin, found, first, count)
    return count


@subkernel
def _find_in(
    data: npt.NDArray[np.uint8],
    begin: int,
    end: int,
    table: npt.NDArray[np.uint32],
    options: Int64s,
    memory: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.uint64]],
    row: int,
    found: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
    count: int,
) -> int:
    """Add the spans of one document to ``count`` others, and return how many there are."""
    min_chars, lines, paragraphs = options[0], options[1], options[2]
    held = 0
    at = blank = begin
    while at < end:
        first, last, chars, after = _line(data, at, end, table)
        if chars == 0:
            at = after
            continue
        start, at = at, after
        while at < end:
            _, line_last, line_chars, after = _line(data, at, end, table)
            if line_chars == 0:
                break
            last, at = line_last, after
            chars += line_chars
        if paragraphs and chars >= min_chars:
            is_new, held = _remember(data, first, last, PARAGRAPH, memory, held)
            if not is_new:
                count = _add(found, kinds, count, row, blank, at, PARAGRAPH)
                blank = at
                continue
        if lines:
            before, is_whole, line = count, True, start
            while line < at:
                first, last, chars, after = _line(data, line, at, table)
                is_new = True
                if chars >= min_chars:
                    is_new, held = _remember(data, first, last, LINE, memory, held)
                if is_new:
                    is_whole = False
                else:
                    count = _add(found, kinds, count, row, line, after, LINE)
                line = after
            if is_whole:
                count = _add(found, kinds, before, row, blank, at, LINE)
        blank = at
    return count


@subkernel
def _line(data: npt.NDArray[np.uint8], at: int, end: int, table: npt.NDArray[np.uint32]) -> tuple[int, int, int, int]:
    """Return where the text of a line begins and ends, how many characters it has, and where the next line begins."""
    first = last = at
    chars = 0
    while at < end:
        point, after = decode(data, at, end)
        if not table[np.uint64(point)] & WHITESPACE:
            if chars == 0:
                first = at
            chars += 1
            last = after
        at = after
        if point == LINE_FEED:
            break
    return first, last, chars, at


@subkernel
def _remember(
    data: npt.NDArray[np.uint8],
    first: int,
    last: int,
    kind: int,
    memory: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.uint64]],
    held: int,
) -> tuple[bool, int]:
    """Return whether ``data[first:last]`` is the first of its kind, and how many are remembered with it."""
    slots, known, hashes = memory
    key = np.uint64(_SEEDS[kind])
    for at in range(first, last):
        key = (key ^ np.uint64(data[at])) * _PRIME
    # The lowest bit tells the kinds apart, so that a paragraph of one line is not that line.
    key = mix(key) >> np.uint64(1) << np.uint64(1) | np.uint64(kind)
    slot = np.int64(key >> np.uint64(1) & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        one = slots[slot]
        if hashes[one] == key and known[one, 1] - known[one, 0] == last - first:
            at = 0
            while at < last - first and data[known[one, 0] + at] == data[first + at]:
                at += 1
            if at == last - first:
                return False, held
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = held
    known[held, 0], known[held, 1], hashes[held] = first, last, key
    return True, held + 1


@subkernel
def _add(
    found: npt.NDArray[np.int64], kinds: npt.NDArray[np.int8], count: int, row: int, start: int, end: int, kind: int
) -> int:
    """Add a span, to the one before where they are of one kind and touch, and return how many there are."""
    last = count - 1
    if count > 0 and found[0, last] == row and found[2, last] == start and kinds[last] == kind:
        found[2, last] = end
        return count
    found[0, count], found[1, count], found[2, count], kinds[count] = row, start, end, kind
    return count + 1


@subkernel
def _take_feed_before(
    data: npt.NDArray[np.uint8], begin: int, found: npt.NDArray[np.int64], first: int, count: int
) -> None:
    """Let the spans at the end of a text that has no line feed there take the one before them."""
    at = count - 1
    while at > first and found[2, at - 1] == found[1, at]:
        at -= 1
    start = found[1, at]
    if start > begin and data[start - 1] == LINE_FEED:
        start -= 1
        if start > begin and data[start - 1] == _CARRIAGE_RETURN:
            start -= 1
    found[1, at] = start
