"""The text blocks of a page and the elements around them, in one compiled pass over the tree as a parser writes it.

What a parser writes is well formed: every element is closed, attributes are quoted, and ``&``, ``<``, ``>`` and the
no-break space are the only characters escaped. So this needs no rules of HTML, and the tree is the parser's own.
"""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False
# ruff: noqa: SIM109, SIM110

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stages.html import elements as el
from stages.html.characters import (
    DIGIT,
    HANGUL,
    LINE_END,
    PUNCTUATION,
    SPACE,
    UNSPACED,
    UPPER,
    WIDE,
    kind_of,
    length_of,
)
from stages.html.hints import FOUND, HIDDEN, STATES, hints_of
from stages.html.lexer import bits_of_name, is_letter, lower
from stages.jit import argument, kernel, subkernel

PARENT, KIND, HINTS, FIRST, LAST, OWN, PATH, SHORT_PATH, ELEMENT_COLUMNS = range(9)
"""Columns of an element: its parent's row, bits of ``elements``, bits of ``hints``, its first block and the one after
its last; hashes of its tag and classes, of those of all down to it, and of the last three. Row 0 is the page."""
START, END, ELEMENT, CHARS, LINKED, WORDS, MARKS, DIGITS, CAPITALS, LINKS, MASS, BLOCK_COLUMNS = range(12)
"""Columns of a block: where its text begins and ends; the row of the innermost element around it; its characters (one
of a script without spaces counts ``PER_WIDE``), those in links, words, sentence marks, digits, capitals, links; and its
mass: unlinked characters of a block that is long and has marks."""
POSITION, WHAT, FROM, TO, SPAN_COLUMNS = range(5)
"""Columns of a span: where in the text it begins or ends, what begins or ends, and where in the page its address is."""
LINK_BEGINS, LINK_ENDS, CODE_BEGINS, CODE_ENDS = range(4)
PER_WIDE: Final = 3
MIN_MASS_CHARS: Final = 60

_BITS, _LOW, _HIGH, _ROW = range(4)
(
    _OUT,
    _BLOCK_START,
    _PENDING,
    _BLOCKS,
    _DEPTH,
    _SKIPPED,
    _LINKED,
    _PRE,
    _ROWS,
    _SPANS,
    _LAST_KIND,
    _OWNER,
    _STATE_SIZE,
) = range(13)
_NO_SPACE, _ONE_SPACE, _NEW_LINE = range(3)
_FNV_START: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)
_MEANINGS: Final = argument(el.MEANINGS)
_STATES: Final = argument(STATES)
_FOUND: Final = argument(FOUND)
_WORDS: Final = argument(np.frombuffer(b"classidrolestylehrefitempropdisplay:nonearia-hiddentrue", np.uint8))
_CLASS, _ID, _ROLE, _STYLE, _HREF, _ITEMPROP, _NONE, _ARIA, _TRUE, _END = 0, 5, 7, 11, 16, 20, 28, 40, 51, 55


class Page:
    """The blocks of a page.

    Attributes:
        source: the page as written by the parser, UTF-8.
        text: the text of all blocks, UTF-8; white space is collapsed but in preformatted text.
        elements: int64 of shape (elements, ``ELEMENT_COLUMNS``), in the order of the page.
        blocks: int64 of shape (blocks, ``BLOCK_COLUMNS``), in the order of the page.
        spans: int64 of shape (spans, ``SPAN_COLUMNS``), in the order of the page: links and code inside the text.
    """

    def __init__(self, written: str) -> None:
        self.source = written.encode("utf-8", "replace")
        page = argument(np.frombuffer(self.source, np.uint8))
        tags = self.source.count(b"<") + 2
        out = np.empty(len(page) + tags, np.uint8)
        elements = np.empty((tags, ELEMENT_COLUMNS), np.int64)
        blocks = np.empty((tags, BLOCK_COLUMNS), np.int64)
        spans = np.empty((tags, SPAN_COLUMNS), np.int64)
        stack = np.empty((tags, 4), np.int64)
        found = read(page, _MEANINGS, _STATES, _FOUND, _WORDS, out, elements, blocks, spans, stack)
        self.text = out[: found[0]].tobytes()
        self.elements, self.blocks, self.spans = elements[: found[1]], blocks[: found[2]], spans[: found[3]]


@subkernel
def _name(page, i):
    """Read the name at ``i``; return (the index after it, its first 8 bytes, the next 8)."""
    low = high = np.int64(0)
    start = i
    while i < len(page) and page[i] != 0x20 and page[i] != 0x3E and page[i] != 0x2F:
        at = i - start
        if at < 8:
            low |= np.int64(lower(page[i])) << np.int64(56 - 8 * at)
        elif at < 16:
            high |= np.int64(lower(page[i])) << np.int64(120 - 8 * at)
        i += 1
    return i, low, high


@subkernel
def _is(page, start, end, words, first, last):
    if end - start != last - first:
        return False
    for at in range(end - start):
        if page[start + at] != words[first + at]:
            return False
    return True


@subkernel
def _hides(page, start, end, words):
    """Return whether a style says ``display:none``."""
    at = 0
    for i in range(start, end):
        if page[i] == 0x20:
            continue
        at = at + 1 if page[i] == words[_NONE + at] else (1 if page[i] == words[_NONE] else 0)
        if at == _ARIA - _NONE:
            return True
    return False


@subkernel
def _hashed(page, start, end, value):
    """Return the hash of bytes, but of digits: ``post-17`` and ``post-18`` are the same class."""
    for i in range(start, end):
        if not 0x30 <= page[i] <= 0x39:
            value = (value ^ np.uint64(page[i])) * _FNV_PRIME
    return value


@subkernel
def _close_block(s, out, blocks):
    """End the current block where it has text."""
    end = s[_OUT]
    start = s[_BLOCK_START]
    while end > start and (out[end - 1] == 0x0A or out[end - 1] == 0x20):
        end -= 1
    if end > start:
        row = s[_BLOCKS]
        blocks[row, START], blocks[row, END] = start, end
        long = blocks[row, MARKS] > 0 and blocks[row, CHARS] > MIN_MASS_CHARS
        blocks[row, MASS] = blocks[row, CHARS] - blocks[row, LINKED] if long else 0
        s[_BLOCKS] += 1
    else:
        end = start
    s[_OUT] = s[_BLOCK_START] = end
    s[_PENDING] = _NO_SPACE
    for column in range(BLOCK_COLUMNS):
        blocks[s[_BLOCKS], column] = 0


@subkernel
def _escaped(page, i):
    """Return (the character that the escape at ``i`` stands for, its length); a space for the no-break space."""
    end = len(page)
    if i + 3 < end and page[i + 2] == 0x74 and page[i + 3] == 0x3B:
        return np.uint8(0x3C if page[i + 1] == 0x6C else 0x3E), 4
    if i + 4 < end and page[i + 1] == 0x61 and page[i + 4] == 0x3B:
        return np.uint8(0x26), 5
    if i + 5 < end and page[i + 1] == 0x6E and page[i + 5] == 0x3B:
        return np.uint8(0x20), 6
    return np.uint8(0x26), 1


@subkernel
def _text(page, i, s, out, blocks):
    """Read the text at ``i``, where nothing is skipped; return the index after it."""
    end, row = len(page), s[_BLOCKS]
    o, start, pending, last = s[_OUT], s[_BLOCK_START], s[_PENDING], s[_LAST_KIND]
    chars = marks = digits = capitals = word_count = 0
    preformatted = s[_PRE] > 0
    while i < end and page[i] != 0x3C:
        char = page[i]
        kind = kind_of(page, i)
        size = min(length_of(char), end - i)
        copied = size
        if char == 0x26:
            char, size = _escaped(page, i)
            kind = SPACE if char == 0x20 else kind
            copied = 1
        if kind == SPACE or kind == LINE_END:
            if not preformatted:
                pending = max(pending, _NEW_LINE if kind == LINE_END else _ONE_SPACE)
                i += size
                continue
            if kind == LINE_END and o == start:
                i += size
                continue
            char = np.uint8(0x0A) if kind == LINE_END else np.uint8(0x09) if char == 0x09 else np.uint8(0x20)
            copied = 1
            word_count += last != SPACE and last != LINE_END
        else:
            if o == start:
                word_count += 1
            elif pending != _NO_SPACE:
                # A line end between two characters of scripts without spaces is no space (CSS Text 3, 4.1.3).
                if out[o - 1] != 0x0A and not (pending == _NEW_LINE and last == WIDE and kind == WIDE):
                    out[o] = 0x20
                    o += 1
                word_count += 1
            pending = _NO_SPACE
            chars += PER_WIDE if kind == WIDE or kind == HANGUL or kind == UNSPACED else 1
            marks += kind == PUNCTUATION or (kind == UNSPACED and marks == 0)
            digits += kind == DIGIT
            capitals += kind == UPPER
        if o == start:
            blocks[row, ELEMENT] = s[_OWNER]
        if copied == 1:
            out[o] = char
        else:
            for at in range(copied):
                out[o + at] = page[i + at]
        o += copied
        # Sentence marks of Han text stand between its characters.
        last = WIDE if kind == PUNCTUATION and size == 3 else kind
        i += size
    s[_OUT], s[_PENDING], s[_LAST_KIND] = o, pending, last
    blocks[row, CHARS] += chars
    blocks[row, LINKED] += chars if s[_LINKED] > 0 else 0
    blocks[row, LINKS] += s[_LINKED] > 0 and chars > 0
    blocks[row, WORDS] += word_count
    blocks[row, MARKS] += marks
    blocks[row, DIGITS] += digits
    blocks[row, CAPITALS] += capitals
    return i


@subkernel
def _span(s, spans, what, start, end):
    spans[s[_SPANS], POSITION] = s[_OUT] + (s[_PENDING] != _NO_SPACE and s[_OUT] > s[_BLOCK_START])
    spans[s[_SPANS], WHAT] = what
    spans[s[_SPANS], FROM] = start
    spans[s[_SPANS], TO] = end
    s[_SPANS] += 1


@subkernel
def _pop(s, out, elements, blocks, spans, stack):
    """Close the innermost open element."""
    s[_DEPTH] -= 1
    bits, row = stack[s[_DEPTH], _BITS], stack[s[_DEPTH], _ROW]
    if bits & el.SKIPPED:
        s[_SKIPPED] -= 1
    if bits & el.LINK:
        s[_LINKED] -= 1
        _span(s, spans, LINK_ENDS, 0, 0)
    if bits & el.CODE:
        _span(s, spans, CODE_ENDS, 0, 0)
    if bits & el.BLOCK:
        if not s[_SKIPPED]:
            _close_block(s, out, blocks)
        elements[row, LAST] = s[_BLOCKS]
        s[_OWNER] = elements[row, PARENT]
    if bits & el.PREFORMATTED:
        s[_PRE] -= 1


@subkernel
def _end_tag(low, high, s, out, elements, blocks, spans, stack):
    at = s[_DEPTH] - 1
    while at >= 0 and not (stack[at, _LOW] == low and stack[at, _HIGH] == high):
        at -= 1
    if at >= 0:
        while s[_DEPTH] > at:
            _pop(s, out, elements, blocks, spans, stack)


@subkernel
def _break(s, out, blocks):
    """End the line; a second line end in a row ends the block."""
    if s[_SKIPPED] or s[_OUT] == s[_BLOCK_START]:
        return
    if out[s[_OUT] - 1] == 0x0A and not s[_PRE]:
        _close_block(s, out, blocks)
        return
    out[s[_OUT]] = 0x0A
    s[_OUT] += 1
    s[_PENDING] = _NO_SPACE
    blocks[s[_BLOCKS], WORDS] += 1


@subkernel
def _skip_raw(page, i, start, length):
    """Return the index of the end tag of the raw text element whose name is at ``start``, or the end of the page."""
    end = len(page)
    while i < end:
        if page[i] == 0x3C and i + 2 + length <= end and page[i + 1] == 0x2F:
            at = 0
            while at < length and page[i + 2 + at] == page[start + at]:
                at += 1
            if at == length:
                return i
        i += 1
    return end


@subkernel
def _skip_markup(page, i):
    end = len(page)
    if i + 3 < end and page[i + 2] == 0x2D and page[i + 3] == 0x2D:
        i += 4
        while i < end and not (page[i] == 0x3E and page[i - 1] == 0x2D and page[i - 2] == 0x2D):
            i += 1
    else:
        while i < end and page[i] != 0x3E:
            i += 1
    return min(i + 1, end)


@subkernel
def _attributes(page, i, words, states, found, values):
    """Read the attributes at ``i``; return the index after the tag. ``values``: hints, class and href from and to."""
    end = len(page)
    for at in range(5):
        values[at] = 0
    while i < end and page[i] != 0x3E:
        if page[i] == 0x20 or page[i] == 0x2F:
            i += 1
            continue
        name = i
        while i < end and page[i] != 0x3D and page[i] != 0x3E and page[i] != 0x20:
            i += 1
        name_end = i
        start = stop = i
        if i + 1 < end and page[i] == 0x3D and page[i + 1] == 0x22:
            i += 2
            start = i
            while i < end and page[i] != 0x22:
                i += 1
            stop = i
            i += 1
        elif i < end and page[i] == 0x3D:
            i += 1
        if _is(page, name, name_end, words, _CLASS, _ID):
            values[1], values[2] = start, stop
            values[0] |= hints_of(page, start, stop, states, found)
        elif (
            _is(page, name, name_end, words, _ID, _ROLE)
            or _is(page, name, name_end, words, _ROLE, _STYLE)
            or _is(page, name, name_end, words, _ITEMPROP, _NONE)
        ):
            values[0] |= hints_of(page, start, stop, states, found)
        elif _is(page, name, name_end, words, _STYLE, _HREF):
            if _hides(page, start, stop, words):
                values[0] |= HIDDEN
        elif _is(page, name, name_end, words, _HREF, _ITEMPROP):
            values[3], values[4] = start, stop
        elif _is(page, name, name_end, words, _ARIA, _TRUE):
            if _is(page, start, stop, words, _TRUE, _END):
                values[0] |= HIDDEN
        elif name_end - name == 6 and page[name] == 0x68 and page[name + 2] == 0x64 and page[name + 5] == 0x6E:
            values[0] |= HIDDEN
    return min(i + 1, end)


@subkernel
def _open_element(page, name, name_end, bits, values, s, elements):
    """Add an element; return its row."""
    row = s[_ROWS]
    s[_ROWS] += 1
    parent = s[_OWNER]
    own = _hashed(page, values[1], values[2], _hashed(page, name, name_end, _FNV_START))
    above = elements[parent, OWN]
    further = elements[elements[parent, PARENT], OWN]
    elements[row, PARENT], elements[row, KIND], elements[row, HINTS] = parent, bits, values[0]
    elements[row, FIRST] = elements[row, LAST] = s[_BLOCKS]
    elements[row, OWN] = np.int64(own)
    elements[row, PATH] = np.int64((np.uint64(elements[parent, PATH]) ^ own) * _FNV_PRIME)
    elements[row, SHORT_PATH] = np.int64(((np.uint64(further) * _FNV_PRIME) ^ np.uint64(above)) * _FNV_PRIME ^ own)
    s[_OWNER] = row
    return row


@subkernel
def _start_tag(page, i, words, meanings, states, found, s, out, elements, blocks, spans, stack, values):
    """Follow the start tag whose name begins at ``i``; return the index after it, and after raw text."""
    start, end = i, len(page)
    i, low, high = _name(page, i)
    name_end = i
    bits = bits_of_name(low, high, name_end - start, meanings)
    i = _attributes(page, i, words, states, found, values)
    if bits & el.BREAK:
        _break(s, out, blocks)
    if bits & el.BLOCK and not s[_SKIPPED]:
        _close_block(s, out, blocks)
    if bits & el.VOID:
        return i
    row = -1
    if bits & el.BLOCK:
        row = _open_element(page, start, name_end, bits, values, s, elements)
    depth = s[_DEPTH]
    stack[depth, _BITS], stack[depth, _LOW], stack[depth, _HIGH], stack[depth, _ROW] = bits, low, high, row
    s[_DEPTH] += 1
    s[_SKIPPED] += bits & el.SKIPPED != 0
    s[_PRE] += bits & el.PREFORMATTED != 0
    if bits & el.LINK:
        s[_LINKED] += 1
        _span(s, spans, LINK_BEGINS, values[3], values[4])
    if bits & el.CODE:
        _span(s, spans, CODE_BEGINS, 0, 0)
    if bits & el.RAW_TEXT:
        i = _skip_raw(page, i, start, name_end - start)
    return min(i, end)


@kernel
def read(
    page: npt.NDArray[np.uint8],
    meanings: npt.NDArray[np.int64],
    states: npt.NDArray[np.int16],
    found: npt.NDArray[np.int64],
    words: npt.NDArray[np.uint8],
    out: npt.NDArray[np.uint8],
    elements: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
    spans: npt.NDArray[np.int64],
    stack: npt.NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Fill ``out``, ``elements``, ``blocks`` and ``spans``; return how much of each is filled.

    There must be room for two more rows than the page has ``<``, and in ``out`` for as many more bytes.
    """
    s = np.zeros(_STATE_SIZE, np.int64)
    values = np.zeros(5, np.int64)
    elements[0] = 0
    blocks[0] = 0
    s[_ROWS] = 1
    i, end = 0, len(page)
    while i < end:
        if page[i] != 0x3C:
            if s[_SKIPPED]:
                while i < end and page[i] != 0x3C:
                    i += 1
            else:
                i = _text(page, i, s, out, blocks)
        elif i + 1 < end and is_letter(page[i + 1]):
            i = _start_tag(page, i + 1, words, meanings, states, found, s, out, elements, blocks, spans, stack, values)
        elif i + 1 < end and page[i + 1] == 0x2F:
            i, low, high = _name(page, i + 2)
            while i < end and page[i] != 0x3E:
                i += 1
            i = min(i + 1, end)
            _end_tag(low, high, s, out, elements, blocks, spans, stack)
        else:
            i = _skip_markup(page, i)
    while s[_DEPTH]:
        _pop(s, out, elements, blocks, spans, stack)
    _close_block(s, out, blocks)
    elements[0, LAST] = s[_BLOCKS]
    return s[_OUT], s[_ROWS], s[_BLOCKS], s[_SPANS]
