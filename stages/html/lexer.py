"""The HTML standard's tokenisation (13.2.5) of UTF-8 bytes in linear time: names, attributes, comments, raw text."""
# numba infers the types of what it compiles, and compiles no generators.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False
# ruff: noqa: SIM110

from __future__ import annotations

from typing import Final

import numpy as np

from stages.html.names import ANNOTATION, FONT, SCRIPT, TABLE_SIZE
from stages.jit import subkernel

# The whole state of the scan is one int64 array of rows, because numba counts the references to every array at every
# call: a row for the current tag, one for the scan itself, then the open elements, then the cut-off formatting
# elements, which were closed by something other than their own end tag and wait to be reopened.
LOW, HIGH, START, LENGTH, END, BITS, HASH = range(7)
"""Columns of an element: the first 16 bytes of its name, its place and length; where its attributes end; what it is
(bits of ``names``); for a formatting element the hash of its attributes, for a marker the row after the cut-off
elements that precede it."""
SIZE, CUT, BASE, DEEPEST, ATTRIBUTES, FLAGS, LIMIT = range(7)
"""Columns of ``STATE``: the rows after the last open and after the last cut-off element; the row of the first cut-off
element inside the last marker; the greatest depth; the number and flags of the current tag's attributes; and how many
open elements there is room for."""
TAG, STATE, MOVED, COST, NOTHING, FIRST = range(6)
REOPENED, COMPARED, ROOT_ATTRIBUTES, OPTIONS = range(4)
"""Columns of ``COST``: bytes that reopening adds to the tree; comparisons that a parser makes of attributes and of
options; and what they are made with: attributes of ``html`` and ``body``, and options, so far."""
CLOSED, FONT_ATTRIBUTE, HTML_ENCODING = 1, 2, 4
CUT_PER_OPEN: Final = 4

WORDS: Final = np.frombuffer(b"colorfacesizeencodingtext/htmlapplication/xhtml+xml<![CDATA[", np.uint8)
_COLOR, _FACE, _SIZE, _ENCODING, _TEXT_HTML, _XHTML, _CDATA = 0, 5, 9, 13, 21, 30, 51
"""Where each word begins in ``WORDS``, and ends: at the next one."""


@subkernel
def lower(byte):
    """Return an ASCII letter in lower case."""
    return byte | 0x20 if 0x41 <= byte <= 0x5A else byte


@subkernel
def is_letter(byte):
    """Return whether ``byte`` is an ASCII letter."""
    return 0x61 <= (byte | 0x20) <= 0x7A


@subkernel
def _is_space(byte):
    return byte == 0x20 or byte == 0x0A or byte == 0x09 or byte == 0x0D or byte == 0x0C


@subkernel
def _ends_name(byte):
    return _is_space(byte) or byte == 0x2F or byte == 0x3E


@subkernel
def read_name(page, i, rows):
    """Read the tag name at ``i`` into the row ``TAG``; return the index after it."""
    low = high = np.int64(0)
    start = i
    while i < len(page) and not _ends_name(page[i]):
        at = i - start
        if at < 8:
            low |= np.int64(lower(page[i])) << np.int64(56 - 8 * at)
        elif at < 16:
            high |= np.int64(lower(page[i])) << np.int64(120 - 8 * at)
        i += 1
    rows[TAG, LOW], rows[TAG, HIGH], rows[TAG, START], rows[TAG, LENGTH], rows[TAG, HASH] = (
        low,
        high,
        start,
        i - start,
        0,
    )
    return i


@subkernel
def bits_of(rows, known):
    """Return the bits of the current tag's name from the table ``known``; 0 for names not in it."""
    return bits_of_name(rows[TAG, LOW], rows[TAG, HIGH], rows[TAG, LENGTH], known)


@subkernel
def bits_of_name(low, high, length, known):
    """Return the bits of a name, its first 8 bytes and the next 8, from the table ``known``; 0 if it is not in it."""
    if length > 16:
        return np.int64(0)
    mixed = np.uint64(low) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(high) * np.uint64(0xC2B2AE3D27D4EB4F)
    slot = np.int64(mixed >> np.uint64(55))
    while known[slot, 0]:
        if known[slot, 0] == low and known[slot, 1] == high:
            return known[slot, 2]
        slot = (slot + 1) % TABLE_SIZE
    return np.int64(0)


@subkernel
def _is_word(page, start, end, words, first, last):
    if end - start != last - first:
        return False
    for at in range(end - start):
        if lower(page[start + at]) != words[first + at]:
            return False
    return True


@subkernel
def read_attributes(page, i, rows, words, bits):
    """Read the attributes at ``i`` into the row ``STATE``; return the index after the tag, or the end of the page."""
    count = flags = 0
    end = len(page)
    while i < end:
        byte = page[i]
        if byte == 0x3E:
            i += 1
            break
        if byte == 0x2F and i + 1 < end and page[i + 1] == 0x3E:
            flags |= CLOSED
            i += 2
            break
        if byte == 0x2F or _is_space(byte):
            i += 1
            continue
        count += 1
        start = i
        i += 1
        while i < end and not _ends_name(page[i]) and page[i] != 0x3D:
            i += 1
        name_end = i
        while i < end and _is_space(page[i]):
            i += 1
        if i >= end or page[i] != 0x3D:
            value = value_end = i
        else:
            i += 1
            while i < end and _is_space(page[i]):
                i += 1
            value = i
            if i < end and (page[i] == 0x22 or page[i] == 0x27):
                quote = page[i]
                i += 1
                value = i
                while i < end and page[i] != quote:
                    i += 1
                value_end = i
                i += 1
            else:
                while i < end and not _is_space(page[i]) and page[i] != 0x3E:
                    i += 1
                value_end = i
        if bits & FONT:
            if (
                _is_word(page, start, name_end, words, _COLOR, _FACE)
                or _is_word(page, start, name_end, words, _FACE, _SIZE)
                or _is_word(page, start, name_end, words, _SIZE, _ENCODING)
            ):
                flags |= FONT_ATTRIBUTE
        elif (
            bits & ANNOTATION
            and _is_word(page, start, name_end, words, _ENCODING, _TEXT_HTML)
            and (
                _is_word(page, value, value_end, words, _TEXT_HTML, _XHTML)
                or _is_word(page, value, value_end, words, _XHTML, _CDATA)
            )
        ):
            flags |= HTML_ENCODING
    rows[STATE, ATTRIBUTES], rows[STATE, FLAGS] = count, flags
    return min(i, end)


@subkernel
def _is_tag_of(page, i, rows):
    """Return whether the current tag's name, and nothing longer, is at ``i``."""
    end = i + rows[TAG, LENGTH]
    if end >= len(page) or not _ends_name(page[end]):
        return False
    for at in range(rows[TAG, LENGTH]):
        if lower(page[i + at]) != lower(page[rows[TAG, START] + at]):
            return False
    return True


@subkernel
def _skip_raw(page, opens, at, rows):
    """Return the index of the current raw text element's end tag, one of ``opens[at:]``, or the end of the page."""
    for k in range(at, len(opens)):
        i = opens[k]
        if i + 1 < len(page) and page[i + 1] == 0x2F and _is_tag_of(page, i + 2, rows):
            return i
    return len(page)


@subkernel
def _skip_script(page, i, rows):
    """Return the same for a script whose text begins at ``i``: a script inside a comment in it hides an end tag."""
    end = len(page)
    comment = inner = False
    while i < end:
        byte = page[i]
        if byte == 0x3C and i + 1 < end:
            if page[i + 1] == 0x2F and _is_tag_of(page, i + 2, rows):
                if not inner:
                    return i
                inner = False
            elif not comment and i + 3 < end and page[i + 1] == 0x21:
                if page[i + 2] == 0x2D and page[i + 3] == 0x2D:
                    comment = True
                    i += 1
            elif comment and not inner and _is_tag_of(page, i + 1, rows):
                inner = True
        elif comment and byte == 0x2D and i + 2 < end and page[i + 1] == 0x2D and page[i + 2] == 0x3E:
            comment = inner = False
        i += 1
    return end


@subkernel
def _skip_comment(page, i):
    """Return the index after the comment whose text begins at ``i``."""
    end = len(page)
    if i < end and page[i] == 0x3E:
        return i + 1
    if i + 1 < end and page[i] == 0x2D and page[i + 1] == 0x3E:
        return i + 2
    while i < end:
        if page[i] == 0x2D and i + 2 < end and page[i + 1] == 0x2D:
            if page[i + 2] == 0x3E:
                return i + 3
            if page[i + 2] == 0x21 and i + 3 < end and page[i + 3] == 0x3E:
                return i + 4
        i += 1
    return end


@subkernel
def _skip_cdata(page, i):
    while i + 2 < len(page):
        if page[i] == 0x5D and page[i + 1] == 0x5D and page[i + 2] == 0x3E:
            return i + 3
        i += 1
    return len(page)


@subkernel
def skip_markup(page, i, in_foreign, words):
    """Return the index after the comment, declaration or CDATA section at ``i``."""
    end = len(page)
    if page[i + 1] == 0x21 and i + 3 < end and page[i + 2] == 0x2D and page[i + 3] == 0x2D:
        return _skip_comment(page, i + 4)
    if in_foreign and i + 9 <= end:
        at = 0
        while at < 9 and page[i + at] == words[_CDATA + at]:
            at += 1
        if at == 9:
            return _skip_cdata(page, i + 9)
    i += 2
    while i < end and page[i] != 0x3E:
        i += 1
    return min(i + 1, end)


@subkernel
def _has_comment(page, opens, at, end):
    """Return whether a comment begins at one of ``opens[at:]`` before ``end``."""
    for k in range(at, len(opens)):
        i = opens[k]
        if i + 3 >= end:
            return False
        if page[i + 1] == 0x21 and page[i + 2] == 0x2D and page[i + 3] == 0x2D:
            return True
    return False


@subkernel
def raw_end(page, opens, at, i, rows, bits):
    """Return the index of the end tag of the current raw text element, whose text begins at ``i``."""
    while at < len(opens) and opens[at] < i:
        at += 1
    end = _skip_raw(page, opens, at, rows)
    if bits & SCRIPT and _has_comment(page, opens, at, end):
        return _skip_script(page, i, rows)
    return end
