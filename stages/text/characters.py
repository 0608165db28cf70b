"""What each character is, to every kernel that reads text: one table over all code points."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from typing import Final

import numpy as np
import numpy.typing as npt

SEPARATOR, LETTER, SINGLE, JOINED, MARK, IGNORED = range(6)
"""Its classes; ``stages.text.words`` says how they make words. Separators are white space, punctuation, symbols,
controls, and whatever is not assigned."""

CLASS_SHIFT: Final = 29
LOWER_CASE: Final = (1 << 21) - 1
_BELOW_CLASS: Final = np.uint32((1 << CLASS_SHIFT) - 1)
WHITESPACE: Final = 1 << 21
ALPHABETIC: Final = 1 << 22
DECIMAL: Final = 1 << 23
BULLET: Final = 1 << 24

CODE_POINTS: Final = 0x110000

SINGLE_RANGES: Final = (
    (0x2E80, 0x312F),  # CJK radicals, kana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and kana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0xA4CF),  # Han, Yi
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # half-width kana
    (0x1AFF0, 0x1B16F),  # kana supplements
    (0x20000, 0x3FFFF),  # Han extensions
)
"""Scripts without spaces of which a letter is a word, or most of one. Both ends are included, here and below."""

JOINED_RANGES: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAADF),  # Myanmar extended A, Tai Viet
    (0x11700, 0x1174F),  # Ahom
)
"""Scripts without spaces of which a word is several letters: those of line-breaking class SA (UAX #14)."""

BULLETS: Final = "-*•‣⁃◦▪▫●○■□►▶–—·⦁"

# All others are unassigned or for private use, in every version up to Unicode 17, and so separators.
_ASSIGNED: Final = (range(0x33480), range(0xE0000, 0xE0200))


@functools.cache
def character_table() -> npt.NDArray[np.uint32]:
    """Return an entry for every code point, read-only uint32 of shape (CODE_POINTS,).

    An entry holds the lower-case code point in the bits of ``LOWER_CASE``, the flags ``WHITESPACE`` to ``BULLET``, and
    the class from bit ``CLASS_SHIFT`` on.
    """
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    for block in _ASSIGNED:
        characters = list(map(chr, block))
        categories = np.frombuffer("".join(map(unicodedata.category, characters)).encode(), "S2")
        major = categories.astype("S1")
        entries = np.array(list(map(str.lower, characters)), "U1").view(np.uint32)
        entries[(major == b"L") | (major == b"N")] |= LETTER << CLASS_SHIFT
        entries[major == b"M"] |= np.uint32(MARK << CLASS_SHIFT)
        entries[categories == b"Cf"] |= np.uint32(IGNORED << CLASS_SHIFT)
        entries[major == b"L"] |= ALPHABETIC
        entries[categories == b"Nd"] |= DECIMAL
        entries[np.fromiter(map(str.isspace, characters), np.bool_, len(block))] |= WHITESPACE
        table[block.start : block.stop] = entries
    _refine(table)
    table.flags.writeable = False
    return table


def _refine(table: npt.NDArray[np.uint32]) -> None:
    """Set what does not follow from the category."""
    for ranges, kind, needed in ((SINGLE_RANGES, SINGLE, 0), (JOINED_RANGES, JOINED, ALPHABETIC)):
        for points in itertools.starmap(slice, ((first, last + 1) for first, last in ranges)):
            block = table[points]
            chosen = (block >> CLASS_SHIFT == LETTER) & (block & needed == needed)
            block[chosen] = block[chosen] & _BELOW_CLASS | np.uint32(kind << CLASS_SHIFT)
    # The final sigma is one letter with the other.
    table[ord("ς")] += np.uint32(ord("σ") - ord("ς"))
    table[ord("_")] |= LETTER << CLASS_SHIFT
    # The zero-width space separates words: the one format character that does.
    table[0x200B] &= _BELOW_CLASS
    table[[ord(bullet) for bullet in BULLETS]] |= BULLET


@functools.cache
def whitespace_bytes() -> npt.NDArray[np.uint8]:
    """Return what each byte of UTF-8 says of white space: 1 is white space, with 2 some character of it begins.

    Read-only uint8 of shape (256,).
    """
    kinds = np.zeros(256, np.uint8)
    for point in np.flatnonzero(character_table() & WHITESPACE).tolist():
        kinds[chr(point).encode()[0]] = 1 if point < 0x80 else 2
    kinds.flags.writeable = False
    return kinds
