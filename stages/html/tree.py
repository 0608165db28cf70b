"""The stack of open elements, followed as the HTML standard's tree construction does (13.2.6).

Only as far as it affects depth. Where it is simpler than a parser, it should leave more elements open, not fewer: no
page may look shallow here and be deep to a parser.
"""
# numba infers the types of what it compiles, and compiles no generators.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from typing import Final

import numpy as np

from stages.html.lexer import (
    BASE,
    BITS,
    CLOSED,
    CUT,
    END,
    FIRST,
    FLAGS,
    FONT_ATTRIBUTE,
    HASH,
    HTML_ENCODING,
    LENGTH,
    MOVED,
    SIZE,
    START,
    STATE,
    TAG,
)
from stages.html.names import (
    ADDRESS_DIV,
    ANCHOR,
    ANNOTATION,
    BARRIER,
    BLOCK,
    BR,
    BREAKOUT,
    BUTTON,
    CAPTION,
    CELL,
    CLOSES_P,
    DD,
    FLAT,
    FONT,
    FOREIGN,
    FORM,
    FORMATTING,
    HEADING,
    HR,
    INTEGRATION,
    LI,
    LIST,
    LISTED,
    MARKER,
    MATH,
    MATH_GLYPH,
    MATH_HTML,
    NO_REOPEN,
    OPTGROUP,
    OPTION,
    RAW,
    ROW,
    RUBY,
    RUBY_BASE,
    RUBY_PART,
    SELECT,
    SPECIAL,
    SVG,
    SVG_HTML,
    TABLE,
    TABLE_PART,
    TEMPLATE,
    VOID,
    P,
)
from stages.html.stack import (
    close,
    close_implied,
    close_kind,
    copy_row,
    count_depth,
    find,
    push,
    remove_row,
    reopen,
    same_name,
    same_tag,
)
from stages.jit import subkernel

MAX_ADOPTIONS: Final = 8
"""Into how many blocks a formatting element's end tag moves it (13.2.6.4.7, the adoption agency algorithm)."""
MAX_ALIKE: Final = 3
"""How many formatting elements with the same attributes are reopened (13.2.4.3)."""
_FNV_START: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)


@subkernel
def _end_ordinary(page, rows, stop):
    for at in range(rows[STATE, SIZE] - 1, FIRST - 1, -1):
        here = rows[at, BITS]
        if not here & FOREIGN and same_name(page, rows, at):
            close(rows, at, here & MARKER != 0)
            return
        if here & stop:
            return


@subkernel
def _end_formatting(page, rows):
    """Close a formatting element, but not the blocks that began inside it; return False if there is none to close."""
    for i in range(rows[STATE, CUT] - 1, rows[STATE, BASE] - 1, -1):
        if same_name(page, rows, i):
            remove_row(rows, i, rows[STATE, CUT])
            rows[STATE, CUT] -= 1
            return True
    at = rows[STATE, SIZE] - 1
    while at >= FIRST and not (rows[at, BITS] & LISTED and same_name(page, rows, at)):
        if rows[at, BITS] & BARRIER:
            return False
        at -= 1
    if at < FIRST:
        return False
    blocks, last = 0, at
    for i in range(at + 1, rows[STATE, SIZE]):
        if rows[i, BITS] & SPECIAL and blocks < MAX_ADOPTIONS:
            blocks += 1
            last = i
    copy_row(rows, MOVED, at)
    remove_row(rows, at, last + 1)
    if blocks == MAX_ADOPTIONS:
        copy_row(rows, last, MOVED)
    else:
        remove_row(rows, last, rows[STATE, SIZE])
        rows[STATE, SIZE] -= 1
        close(rows, last)
    return True


@subkernel
def end_tag(page, rows, bits):
    """Follow an end tag."""
    at = rows[STATE, SIZE] - 1
    if rows[at, BITS] & FOREIGN:
        if bits & (P | BR):
            _leave_foreign(rows)
        at = rows[STATE, SIZE] - 1
        while rows[at, BITS] & FOREIGN:
            if same_name(page, rows, at):
                close(rows, at)
                return
            at -= 1
    if bits & FORMATTING:
        if not _end_formatting(page, rows):
            _end_ordinary(page, rows, SPECIAL)
    elif bits & P:
        close_kind(rows, P, BARRIER | BUTTON)
    elif bits & HEADING:
        close_kind(rows, HEADING, BARRIER)
    elif bits & FORM:
        at = find(rows, FORM, BARRIER)
        if at:
            remove_row(rows, at, rows[STATE, SIZE])
            rows[STATE, SIZE] -= 1
    elif bits & LI:
        _end_ordinary(page, rows, BARRIER | LIST)
    elif bits & BLOCK:
        _end_ordinary(page, rows, BARRIER)
    elif bits & (TABLE | CELL | CAPTION | TABLE_PART):
        _end_of_table(page, rows, bits)
    elif bits & BR:
        reopen(rows)
    elif not bits & (VOID | FLAT):
        _end_ordinary(page, rows, SPECIAL)


@subkernel
def _end_of_table(page, rows, bits):
    """Follow the end tag of a table or a part of one."""
    at = find(rows, CELL | CAPTION, TABLE | TEMPLATE)
    if at and (bits & TABLE or (bits & ROW and rows[at, BITS] & CELL) or same_name(page, rows, at)):
        close(rows, at, True)
    if bits & TABLE:
        close_kind(rows, TABLE, TEMPLATE)


@subkernel
def _start_of_table(rows, bits):
    """Follow the start tag of a table or a part of one."""
    at = find(rows, TABLE | CELL | CAPTION, TEMPLATE)
    if bits & TABLE:
        if at and rows[at, BITS] & TABLE:
            close(rows, at)
        push(rows, TAG, bits)
    elif at:
        if rows[at, BITS] & TABLE:
            close(rows, at + 1)
        else:
            close(rows, at, True)
        if bits & (CELL | CAPTION):
            push(rows, TAG, bits)


@subkernel
def _leave_foreign(rows):
    top = rows[STATE, SIZE] - 1
    while rows[top, BITS] & (FOREIGN | INTEGRATION) == FOREIGN:
        top -= 1
    close(rows, top + 1)


@subkernel
def _is_foreign(top, bits):
    """Return whether a start tag is one of SVG or MathML where ``top`` is the innermost element."""
    if not top & FOREIGN or (top & ANNOTATION and bits & SVG):
        return False
    return not top & INTEGRATION or (top & MATH_HTML and bits & MATH_GLYPH)


@subkernel
def _start_foreign(rows, top, bits):
    """Follow a start tag inside SVG or MathML."""
    if rows[STATE, FLAGS] & CLOSED:
        count_depth(rows, rows[STATE, SIZE] + 1)
        return
    space = top & (SVG | MATH)
    kind = FOREIGN | space
    if space == SVG and bits & SVG_HTML:
        kind |= INTEGRATION | SPECIAL | BARRIER
    elif space == MATH and bits & MATH_HTML:
        kind |= INTEGRATION | SPECIAL | BARRIER | MATH_HTML
    elif space == MATH and bits & ANNOTATION:
        kind |= SPECIAL | BARRIER | (INTEGRATION if rows[STATE, FLAGS] & HTML_ENCODING else ANNOTATION)
    push(rows, TAG, kind)


@subkernel
def _close_before(page, rows, bits):
    """Close what a start tag closes."""
    if bits & (LI | DD):
        for at in range(rows[STATE, SIZE] - 1, FIRST - 1, -1):
            here = rows[at, BITS]
            if here & bits & (LI | DD):
                close(rows, at)
                break
            if here & (SPECIAL | BARRIER) and not here & ADDRESS_DIV:
                break
    if bits & CLOSES_P:
        close_kind(rows, P, BARRIER | BUTTON)
    top = rows[STATE, SIZE] - 1
    if not bits & (OPTION | OPTGROUP | HR | RUBY_PART | HEADING | BUTTON | ANCHOR) or rows[top, BITS] & FOREIGN:
        return
    if bits & (OPTION | OPTGROUP | HR) and find(rows, SELECT, BARRIER):
        close_implied(rows, OPTGROUP if bits & OPTION else 0)
    elif bits & RUBY_PART and find(rows, RUBY, BARRIER):
        close_implied(rows, 0 if bits & RUBY_BASE else RUBY_BASE)
    elif (bits & HEADING and rows[top, BITS] & HEADING) or (bits & (OPTION | OPTGROUP) and rows[top, BITS] & OPTION):
        close(rows, top)
    elif bits & BUTTON:
        close_kind(rows, BUTTON, BARRIER)
    elif bits & ANCHOR:
        _end_formatting(page, rows)


@subkernel
def _list_formatting(page, rows):
    """Hash the attributes of a formatting element; if three open ones are alike, keep the first from being reopened."""
    h = _FNV_START
    for i in range(rows[TAG, START] + rows[TAG, LENGTH], rows[TAG, END]):
        h = (h ^ np.uint64(page[i])) * _FNV_PRIME
    rows[TAG, HASH] = np.int64(h)
    alike = first = 0
    for at in range(rows[STATE, SIZE] - 1, FIRST - 1, -1):
        if rows[at, BITS] & MARKER:
            break
        if rows[at, BITS] & LISTED and same_tag(page, rows, at):
            alike += 1
            first = at
    if alike >= MAX_ALIKE:
        rows[first, BITS] &= ~LISTED


@subkernel
def start_tag(page, rows, bits):
    """Follow a start tag; return whether raw text follows."""
    top = rows[rows[STATE, SIZE] - 1, BITS]
    if top & FOREIGN and _is_foreign(top, bits):
        if not (bits & BREAKOUT or (bits & FONT and rows[STATE, FLAGS] & FONT_ATTRIBUTE)):
            _start_foreign(rows, top, bits)
            return False
        _leave_foreign(rows)
    _close_before(page, rows, bits)
    if rows[STATE, CUT] > rows[STATE, BASE] and not bits & NO_REOPEN:
        reopen(rows)
    if bits & (TABLE | CELL | CAPTION | TABLE_PART):
        _start_of_table(rows, bits)
        return False
    if bits & (RAW | VOID):
        count_depth(rows, rows[STATE, SIZE] + 1)
        return bits & RAW != 0
    if bits & FORMATTING:
        _list_formatting(page, rows)
    if bits & (SVG | MATH):
        if not rows[STATE, FLAGS] & CLOSED:
            push(rows, TAG, FOREIGN | (bits & (SVG | MATH)))
    elif not bits & FLAT:
        push(rows, TAG, bits)
    return False
