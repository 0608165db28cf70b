"""Whether text is in NFC, without normalising it: the quick check of UAX #15, over a whole column at once."""

from __future__ import annotations

import functools
import unicodedata
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.jit import argument, kernel
from stages.text.blocks import BLOCK, from_u0300, trailing_zeros
from stages.text.characters import CODE_POINTS
from stages.text.utf8 import decode, utf8_buffers

MAYBE: Final = 255
"""In the table of ``combining_classes``: a character that may not stay what it is in NFC."""

_FIRST: Final = 0x300
_FIRST_BYTE: Final = 0xCC
"""All characters below U+0300 are in NFC and combine with nothing before them; UTF-8 of the others begins here."""
_ASSIGNED: Final = (range(_FIRST, 0xD800), range(0xE000, 0x33480), range(0xE0000, 0xE0200))
_HANGUL: Final = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
"""Vowels and final consonants, which combine with what is before them by rule."""


def composed(text: pa.Array) -> pa.Array:
    """Return the strings in NFC, empty ones for null; the same array where nothing changes."""
    text = text.fill_null("") if text.null_count else text
    rows = np.flatnonzero(may_change(*utf8_buffers(text)))
    strings = text.take(pa.array(rows)).to_pylist()
    changes = np.array([not unicodedata.is_normalized("NFC", string) for string in strings], np.bool_)
    if not changes.any():
        return text
    changed = np.zeros(len(text), np.bool_)
    changed[rows[changes]] = True
    composed = [unicodedata.normalize("NFC", string) for string, is_new in zip(strings, changes, strict=True) if is_new]
    return pc.replace_with_mask(text, pa.array(changed), pa.array(composed, text.type))


def may_change(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which of n documents may not be in NFC; one of them is in most cases that are found.

    Args:
        data: UTF-8.
        bounds: where the documents begin, int64 of shape (n + 1,).
    """
    found = np.zeros(len(bounds) - 1, np.bool_)
    _check(argument(data), argument(bounds), combining_classes(), found)
    return found


@functools.cache
def combining_classes() -> npt.NDArray[np.uint8]:
    """Return the combining class of every code point, or ``MAYBE``; read-only uint8 of shape (CODE_POINTS,)."""
    table = np.zeros(CODE_POINTS, np.uint8)
    for block in _ASSIGNED:
        characters = list(map(chr, block))
        table[block.start : block.stop] = np.fromiter(map(unicodedata.combining, characters), np.uint8, len(block))
        for point, character in zip(block, characters, strict=True):
            decomposed = unicodedata.decomposition(character)
            if decomposed and decomposed[0] != "<":
                parts = [int(part, 16) for part in decomposed.split()]
                # The character itself, if NFC takes it apart; and what may come together with a character before it.
                if not unicodedata.is_normalized("NFC", character):
                    table[point] = MAYBE
                table[parts[1:]] = MAYBE
    for character in map(chr, range(_FIRST)):
        table[[int(part, 16) for part in unicodedata.decomposition(character).split()[1:] if part[0] != "<"]] = MAYBE
    table[list(_HANGUL)] = MAYBE
    table[:_FIRST] = 0
    table.flags.writeable = False
    return table


@kernel
def _check(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    classes: npt.NDArray[np.uint8],
    found: npt.NDArray[np.bool_],
) -> None:
    """Mark documents with a character that may change, or with marks that are out of order."""
    last = len(data) - BLOCK
    for row in range(len(bounds) - 1):
        at, end = bounds[row], bounds[row + 1]
        before, behind = np.int64(0), np.int64(-1)
        while at < end:
            if at <= last:
                at += trailing_zeros(from_u0300(data, at))
                if at >= end or data[np.uint64(at)] < _FIRST_BYTE:
                    continue
            elif data[np.uint64(at)] < _FIRST_BYTE:
                at += 1
                continue
            point, after = decode(data, at, end)
            its = np.int64(classes[np.uint64(point)])
            # Marks on one letter stand one behind the other.
            if its == MAYBE or (its and behind == at and before > its):
                found[row] = True
                break
            before, behind = its, np.int64(after)
            at = after
