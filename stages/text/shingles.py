"""Word shingles of documents as sorted sets of 64-bit hashes, straight from Arrow's text buffers.

A word is a maximal run of letters, marks, numbers and ``_`` in Unicode's sense (``\\w`` of UTS 18), lower-cased one
character at a time, in NFC. In scripts that are written without spaces (Han, kana, Thai, Khmer, ...) every letter is a
word of its own, with the marks that follow it, so that a Chinese document has shingles as an English one does. Format
characters such as a soft hyphen or a joiner are passed over, because they change neither reading nor meaning.

A shingle is ``words`` consecutive words; a shorter document has one shingle of all its words, one without words none.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shards.errors import UserError
from stages.jit import argument, kernel, mix, subkernel

UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int64s: TypeAlias = npt.NDArray[np.int64]

MAX_SHINGLE_WORDS: Final = 64

SPACELESS: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x2E80, 0x312F),  # CJK radicals, kana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and kana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0xA4CF),  # Han, Yi
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAADF),  # Myanmar extended A, Tai Viet
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # half-width kana
    (0x1AFF0, 0x1B16F),  # kana supplements
    (0x20000, 0x323AF),  # Han extensions B to H
)
"""Ranges of code points, both ends included, whose scripts put no space between words. All take 3 bytes or more."""

# Classes of a character, in bits 21-23 of its entry; the bits below hold its lower-case code point.
SEPARATOR, LETTER, SINGLE, MARK, SKIPPED = range(5)
CLASS_SHIFT: Final = 21
WHITESPACE: Final = 1 << 24

_CODE_POINTS: Final = 0x110000
_ASSIGNED: Final = (range(0x323B0), range(0xE0000, 0xE01F0))
_PLAIN_BITS: Final = np.uint32((1 << CLASS_SHIFT) - 1)
_WORD_SEED: Final = np.uint64(0x243F6A8885A308D3)
_WORD_BASE: Final = np.uint64(0xD6E8FEB86659FD93)
_SHINGLE_BASE: Final = np.uint64(0xA0761D6478BD642F)


@functools.cache
def character_table() -> UInt32s:
    """Return lower case, class and whether it is whitespace for every code point, uint32 of shape (0x110000,)."""
    table = np.arange(_CODE_POINTS, dtype=np.uint32)
    spaceless = {point for low, high in SPACELESS for point in range(low, high + 1)}
    for block in _ASSIGNED:
        for point in block:
            character = chr(point)
            lower = character.lower()
            # Only the dotted capital I gives two characters; the final sigma is one letter with the other.
            folded = {"ς": "σ"}.get(lower, lower[0])
            entry = ord(folded) | _character_class(character, point in spaceless) << CLASS_SHIFT
            table[point] = entry | WHITESPACE * character.isspace()
    table.flags.writeable = False
    return table


def _character_class(character: str, spaceless: bool) -> int:
    category = unicodedata.category(character)
    if category[0] == "M":
        return MARK
    if category[0] in "LN" or character == "_":
        return SINGLE if spaceless else LETTER
    # The zero-width space separates words; it is the one format character that does.
    return SKIPPED if category == "Cf" and character != "\u200b" else SEPARATOR


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


def utf8_buffers(text: pa.Array) -> tuple[UInt8s, Int64s]:
    """Return the UTF-8 bytes of a string array without nulls and its offsets into them, int64 of shape (n + 1,)."""
    if text.null_count or not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type)):
        raise TypeError(f"{text.type} with {text.null_count} nulls is not an array of strings")
    _, offsets, data = text.buffers()
    width = np.int32 if pa.types.is_string(text.type) else np.int64
    raw = argument(np.frombuffer(data if data is not None else b"", np.uint8))
    if offsets is None or not len(text):
        return raw, np.zeros(1, np.int64)
    return raw, np.frombuffer(offsets, width)[text.offset : text.offset + len(text) + 1].astype(np.int64)


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
    """Return ``batch_shingles`` of documents that are composed already, in the form that ``utf8_buffers`` gives."""
    if not 1 <= words <= MAX_SHINGLE_WORDS:
        raise UserError(
            f"shingles of {words} words", place="shingle_words", remedy=f"Give 1 to {MAX_SHINGLE_WORDS}; 5 is usual"
        )
    hashes = np.empty(int(bounds[-1] - bounds[0]) // 2 + len(bounds), np.uint64)
    offsets = np.zeros(len(bounds), np.int64)
    _shingle(argument(data), argument(bounds), character_table(), words, hashes, offsets)
    # numpy's vectorised sort, a document at a time, is several times faster than one inside the kernel.
    for start, end in itertools.pairwise(offsets.tolist()):
        hashes[start:end].sort()
    total = _unique(hashes, offsets)
    return offsets, hashes[:total].copy()


def shingle_hashes(text: str, words: int) -> UInt64s:
    """Return the shingles of one document, uint64 ascending and each once; see ``batch_shingles``."""
    return batch_shingles(pa.array([text], pa.large_string()), words)[1]


@subkernel
def _decode(data: UInt8s, at: int, end: int) -> tuple[np.int64, int]:
    """Return the code point at ``at`` and where the next begins; malformed bytes are one replacement character each."""
    first = np.int64(data[at])
    if first < 0x80:
        return first, at + 1
    length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC2 or first > 0xF4 or at + length > end:
        return np.int64(0xFFFD), at + 1
    point = first & (0x7F >> length)
    for step in range(1, length):
        byte = np.int64(data[at + step])
        if byte & 0xC0 != 0x80:
            return np.int64(0xFFFD), at + 1
        point = point << 6 | byte & 0x3F
    return min(point, np.int64(0x10FFFF)), at + length


@subkernel
def _word_hashes(data: UInt8s, at: int, end: int, table: UInt32s, out: UInt64s, count: int) -> int:
    """Write a hash of every word of one document to ``out`` from ``count`` on; give the new count."""
    state = _WORD_SEED
    inside = SEPARATOR
    while at < end:
        point, at = _decode(data, at, end)
        entry = table[point]
        kind = (entry >> CLASS_SHIFT) & 7
        if kind == SKIPPED:
            continue
        goes_on = kind == MARK or (kind == LETTER and inside == LETTER)
        if inside != SEPARATOR and not goes_on:
            out[count] = mix(state)
            count += 1
            inside = SEPARATOR
        if kind != SEPARATOR:
            if inside == SEPARATOR:
                state = _WORD_SEED
                inside = LETTER if kind == MARK else kind
            state = state * _WORD_BASE + np.uint64(entry & _PLAIN_BITS)
            # Most text is runs of ASCII letters: go on through them without deciding anything anew.
            while inside == LETTER and at < end and data[at] < 0x80 and (table[data[at]] >> CLASS_SHIFT) & 7 == LETTER:
                state = state * _WORD_BASE + np.uint64(table[data[at]] & _PLAIN_BITS)
                at += 1
    if inside != SEPARATOR:
        out[count] = mix(state)
        count += 1
    return count


@kernel
def _shingle(data: UInt8s, bounds: Int64s, table: UInt32s, words: int, out: UInt64s, offsets: Int64s) -> None:
    """Write the shingles of every document, in the order of its text: a polynomial that rolls over the word hashes."""
    leading = np.uint64(1)
    for _ in range(words - 1):
        leading *= _SHINGLE_BASE
    start = 0
    for row in range(len(bounds) - 1):
        end = _word_hashes(data, bounds[row], bounds[row + 1], table, out, start)
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
    """Drop repeated neighbours inside every document, in place; give how many stay in all."""
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
