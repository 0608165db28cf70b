"""Word shingles of documents as sorted sets of 64-bit hashes, straight from Arrow's text buffers.

A shingle is ``words`` consecutive words of ``stages.text.words``, the text being in NFC; a shorter document has one
shingle of all its words, one without words none.
"""

from __future__ import annotations

import itertools
import unicodedata
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shards.errors import UserError
from stages.jit import argument, kernel, mix
from stages.text.characters import character_table
from stages.text.utf8 import utf8_buffers
from stages.text.words import cut_words

UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int64s: TypeAlias = npt.NDArray[np.int64]

MAX_SHINGLE_WORDS: Final = 64

_SHINGLE_BASE: Final = np.uint64(0xA0761D6478BD642F)


def composed(text: pa.Array) -> pa.Array:
    """Return the strings in NFC, empty ones for null; the same array where nothing changes."""
    text = text.fill_null("") if text.null_count else text
    rows = np.flatnonzero(~pc.string_is_ascii(text).to_numpy(zero_copy_only=False))
    other = text.take(pa.array(rows)).to_pylist()
    if all(unicodedata.is_normalized("NFC", string) for string in other):
        return text
    strings = text.to_pylist()
    for row, string in zip(rows, other, strict=True):
        strings[row] = unicodedata.normalize("NFC", string)
    return pa.array(strings, text.type)


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
    if not 1 <= words <= MAX_SHINGLE_WORDS:
        raise UserError(
            f"shingles of {words} words", place="shingle_words", remedy=f"Choose 1 to {MAX_SHINGLE_WORDS}; 5 is usual"
        )
    hashes = np.empty(int(bounds[-1] - bounds[0]) // 2 + len(bounds), np.uint64)
    offsets = np.zeros(len(bounds), np.int64)
    _shingle(argument(data), argument(bounds), character_table(), words, hashes, offsets)
    # numpy's vectorised sort, a document at a time, is several times faster than one inside the kernel.
    for start, end in itertools.pairwise(offsets.tolist()):
        hashes[start:end].sort()
    total = _unique(hashes, offsets)
    return offsets, hashes[:total].copy()


@kernel
def _shingle(data: UInt8s, bounds: Int64s, table: UInt32s, words: int, out: UInt64s, offsets: Int64s) -> None:
    """Write the shingles of every document, in the order of its text: a polynomial that rolls over the word hashes."""
    leading = np.uint64(1)
    for _ in range(words - 1):
        leading *= _SHINGLE_BASE
    start = 0
    for row in range(len(bounds) - 1):
        _, count = cut_words(data, bounds[row], bounds[row + 1], table, out[start:], None, None)
        end = start + count
        state = np.uint64(0)
        for at in range(start, min(start + words, end)):
            state = state * _SHINGLE_BASE + out[at]
        for at in range(start, end - words):
            first = out[at]
            out[at] = mix(state)
            state = (state - first * leading) * _SHINGLE_BASE + out[at + words]
        if end > start:
            last = max(start, end - words)
            out[last] = mix(state)
            start = last + 1
        offsets[row + 1] = start


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
