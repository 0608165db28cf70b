"""Word shingles of documents as sorted sets of 64-bit hashes, straight from Arrow's text buffers.

A shingle is ``words`` consecutive words of ``stages.text.words``, the text being in NFC; a shorter document has one
shingle of all its words, one without words none.
"""

from __future__ import annotations

import itertools
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.errors import UserError
from stages.jit import argument, kernel, mix, subkernel
from stages.text.characters import character_table
from stages.text.normal import composed
from stages.text.utf8 import utf8_buffers
from stages.text.words import base_powers, byte_terms, hash_words

UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int64s: TypeAlias = npt.NDArray[np.int64]

MAX_SHINGLE_WORDS: Final = 64

_SHINGLE_BASE: Final = np.uint64(0xA0761D6478BD642F)
_LEAST_SLOTS: Final = 64
_MOST_SLOTS: Final = 1 << 22


def batch_shingles(text: pa.Array, words: int) -> tuple[Int64s, UInt64s]:
    """Return the shingles of every document.

    Args:
        text: string or large_string array of n documents; null counts as empty.
        words: length of a shingle, 1 to 64.

    Returns:
        offsets, int64 of shape (n + 1,), and hashes, uint64: ``hashes[offsets[i]:offsets[i + 1]]`` are those of
        document i, ascending and each once. At most one per two bytes of text.

    Raises:
        UserError: if ``words`` is out of range.
    """
    return buffer_shingles(*utf8_buffers(composed(text)), words)


def buffer_shingles(data: UInt8s, bounds: Int64s, words: int) -> tuple[Int64s, UInt64s]:
    """Return ``batch_shingles`` of documents that are composed already, in the form that ``utf8_buffers`` returns."""
    require_length(words)
    hashes = np.empty(int(bounds[-1] - bounds[0]) // 2 + 2 * len(bounds), np.uint64)
    offsets = np.zeros(len(bounds), np.int64)
    _shingle(argument(data), argument(bounds), character_table(), byte_terms(), base_powers(), words, hashes, offsets)
    # numpy's vectorised sort, a document at a time, is several times faster than one inside the kernel.
    for start, end in itertools.pairwise(offsets.tolist()):
        hashes[start:end].sort()
    total = _unique(hashes, offsets)
    return offsets, hashes[:total].copy()


def require_length(words: int) -> None:
    """Refuse a length of shingles that is out of range.

    Raises:
        UserError: if it is.
    """
    if not 1 <= words <= MAX_SHINGLE_WORDS:
        raise UserError(
            f"shingles of {words} words", place="shingle_words", remedy=f"Choose 1 to {MAX_SHINGLE_WORDS}; 5 is usual"
        )


@kernel
def _shingle(
    data: UInt8s,
    bounds: Int64s,
    table: UInt32s,
    terms: UInt64s,
    powers: UInt64s,
    words: int,
    out: UInt64s,
    offsets: Int64s,
) -> None:
    """Write the shingles of every document, in the order of its text."""
    start = 0
    for row in range(len(bounds) - 1):
        start += list_shingles(data, bounds[row], bounds[row + 1], table, terms, powers, words, out[start:])
        offsets[row + 1] = start


@subkernel
def list_shingles(
    data: UInt8s, at: int, end: int, table: UInt32s, terms: UInt64s, powers: UInt64s, words: int, out: UInt64s
) -> int:
    """Write the shingles of ``data[at:end]`` in its order, also repeated ones, and return their number.

    The arguments are those of ``hash_words``. A shingle is a polynomial that rolls over the hashes of the words.
    """
    count = hash_words(data, at, end, table, terms, powers, out)
    leading = np.uint64(1)
    for _ in range(words - 1):
        leading *= _SHINGLE_BASE
    state = np.uint64(0)
    for place in range(min(words, count)):
        state = state * _SHINGLE_BASE + out[np.uint64(place)]
    for place in range(count - words):
        first = out[np.uint64(place)]
        out[np.uint64(place)] = state
        state = (state - first * leading) * _SHINGLE_BASE + out[np.uint64(place + words)]
    if not count:
        return 0
    last = max(0, count - words)
    out[np.uint64(last)] = state
    # Apart from the loop above, where each waits for the one before it: here none does.
    for place in range(np.uint64(last + 1)):
        out[place] = mix(out[place])
    return last + 1


@subkernel
def distinct(hashes: UInt64s, count: int, slots: UInt64s) -> int:
    """Return how many of the first ``count`` hashes differ; -1 where that would take too much space or time.

    Args:
        hashes: uint64, well mixed.
        count: how many.
        slots: working space: ``slots_for(count)``.
    """
    if 4 * count > _MOST_SLOTS:
        return -1
    size = np.uint64(_LEAST_SLOTS)
    while size < 4 * count:
        size <<= np.uint64(1)
    slots[:size] = 0
    last = size - np.uint64(1)
    # Zero means a free slot, so the hash 0 is counted apart.
    found = has_zero = steps = np.int64(0)
    # By chance there is one step for eight hashes; text can be made in which each hash meets all others.
    limit = 1_000 + 4 * count
    for place in range(np.uint64(count)):
        value = hashes[place]
        slot = value & last
        held = slots[slot]
        while held != 0 and held != value:
            slot = (slot + np.uint64(1)) & last
            held = slots[slot]
            steps += 1
        slots[slot] = value
        found += held != value
        has_zero |= value == 0
        if steps > limit:
            return -1
    return int(found + has_zero)


def slots_for(count: int) -> UInt64s:
    """Return the working space of ``distinct`` for so many hashes: four times as many slots, and 32 MB at most."""
    return np.empty(min(_MOST_SLOTS, max(_LEAST_SLOTS, 1 << (4 * count - 1).bit_length())), np.uint64)


@kernel
def _unique(hashes: UInt64s, offsets: Int64s) -> int:
    """Drop repeated neighbours inside every document, in place; return how many stay in all."""
    kept = 0
    start = 0
    for row in range(len(offsets) - 1):
        end = offsets[row + 1]
        for at in range(start, end):
            if at == start or hashes[at] != hashes[at - 1]:
                hashes[kept] = hashes[at]
                kept += 1
        offsets[row + 1] = kept
        start = end
    return kept
