"""Characters of a page's UTF-8 text, as far as extraction must know them: white space, scripts, punctuation."""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from stages.jit import subkernel

OTHER, SPACE, LINE_END, PUNCTUATION, DIGIT, UPPER, WIDE, UNSPACED, HANGUL = range(9)
"""Kinds of character. ``WIDE`` are Han and kana, ``UNSPACED`` other scripts written without spaces, such as Thai."""


@subkernel
def length_of(byte):
    """Return how many bytes the character takes that begins with ``byte``."""
    if byte < 0xC0:
        return 1
    return 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


@subkernel
def _two(first, second):
    # Arabic comma, semicolon, question mark and full stop; Armenian and Greek marks; Cyrillic capitals.
    if (first == 0xD8 and (second == 0x8C or second == 0x9B or second == 0x9F)) or (first == 0xDB and second == 0x94):
        return PUNCTUATION
    if (first == 0xD6 and second == 0x89) or (first == 0xCD and second == 0xBE):
        return PUNCTUATION
    return UPPER if first == 0xD0 and 0x80 <= second <= 0xAF else OTHER


@subkernel
def _three(first, second, third):
    if first == 0xE3:
        if second == 0x80:
            if third == 0x80:
                return SPACE
            return PUNCTUATION if third == 0x81 or third == 0x82 else WIDE
        return WIDE
    if first == 0xEF:
        if second == 0xBC and (third == 0x81 or third == 0x8C or third == 0x9A or third == 0x9B or third == 0x9F):
            return PUNCTUATION
        return WIDE if second >= 0xBC or 0xA4 <= second <= 0xAB else OTHER
    if 0xE4 <= first <= 0xE9:
        return WIDE
    if (first == 0xEA and second >= 0xB0) or first == 0xEB or first == 0xEC or (first == 0xED and second <= 0x9E):
        return HANGUL
    if first == 0xE0:
        if second == 0xA5 and (third == 0xA4 or third == 0xA5):
            return PUNCTUATION
        return UNSPACED if second >= 0xB8 and second <= 0xBB else OTHER
    if first == 0xE1:
        if (second == 0x8D and 0xA1 <= third <= 0xA8) or (second == 0x9F and third == 0x94):
            return PUNCTUATION
        return UNSPACED if 0x80 <= second <= 0x82 or second == 0x9E or second == 0x9F else OTHER
    return OTHER


@subkernel
def kind_of(page, i):
    """Return what the character is that begins at ``i``."""
    byte = page[i]
    if byte < 0x80:
        if byte == 0x20 or byte == 0x09 or byte == 0x0C:
            return SPACE
        if byte == 0x0A or byte == 0x0D:
            return LINE_END
        if 0x30 <= byte <= 0x39:
            return DIGIT
        if 0x41 <= byte <= 0x5A:
            return UPPER
        if byte == 0x2C or byte == 0x2E or byte == 0x21 or byte == 0x3F or byte == 0x3B:
            return PUNCTUATION
        return OTHER
    size = length_of(byte)
    if i + size > len(page):
        return OTHER
    if size == 2:
        return SPACE if byte == 0xC2 and page[i + 1] == 0xA0 else _two(byte, page[i + 1])
    if size == 3:
        return _three(byte, page[i + 1], page[i + 2])
    return WIDE if size == 4 and byte == 0xF0 and 0xA0 <= page[i + 1] <= 0xB2 else OTHER
