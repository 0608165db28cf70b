"""The stack of open elements, and the cut-off formatting elements that a parser reopens (13.2.4.2 and 13.2.4.3)."""
# numba infers the types of what it compiles, and compiles no generators.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False
# ruff: noqa: SIM110

from __future__ import annotations

from typing import Final

from stages.html.lexer import (
    BASE,
    BITS,
    COST,
    CUT,
    DEEPEST,
    END,
    FIRST,
    HASH,
    HIGH,
    LENGTH,
    LIMIT,
    LOW,
    REOPENED,
    SIZE,
    START,
    STATE,
    TAG,
    lower,
)
from stages.html.names import FOREIGN, IMPLIED, LISTED, MARKER
from stages.jit import subkernel

NODE_BYTES: Final = 64
"""What an element counts for beside its tag."""


@subkernel
def same_name(page, rows, one):
    """Return whether the element in row ``one`` has the name of the current tag."""
    length = rows[TAG, LENGTH]
    if rows[one, LOW] != rows[TAG, LOW] or rows[one, HIGH] != rows[TAG, HIGH] or rows[one, LENGTH] != length:
        return False
    for at in range(16, length):
        if lower(page[rows[one, START] + at]) != lower(page[rows[TAG, START] + at]):
            return False
    return True


@subkernel
def same_tag(page, rows, one):
    """Return whether the element in row ``one`` has the name and, as written, the attributes of the current tag."""
    if rows[one, HASH] != rows[TAG, HASH] or not same_name(page, rows, one):
        return False
    first, second = rows[one, START], rows[TAG, START]
    if rows[one, END] - first != rows[TAG, END] - second:
        return False
    for at in range(rows[one, LENGTH], rows[one, END] - first):
        if page[first + at] != page[second + at]:
            return False
    return True


@subkernel
def copy_row(rows, target, source):
    """Copy an element."""
    for column in range(7):
        rows[target, column] = rows[source, column]


@subkernel
def push(rows, source, bits):
    """Open the element in row ``source``, with ``bits`` for what it is."""
    size = rows[STATE, SIZE]
    if size < FIRST + rows[STATE, LIMIT]:
        copy_row(rows, size, source)
        rows[size, BITS] = bits
        if bits & MARKER:
            rows[size, HASH] = rows[STATE, BASE] = rows[STATE, CUT]
        rows[STATE, SIZE] = size + 1
    count_depth(rows, size + 1)


@subkernel
def count_depth(rows, size):
    """Record a depth, given as the row after the deepest element."""
    rows[STATE, DEEPEST] = max(rows[STATE, DEEPEST], size - FIRST)


@subkernel
def close(rows, at, clear=False):
    """Close the elements from ``at`` on; formatting elements among them are to be reopened.

    With ``clear`` the element at ``at`` is a marker closed by its own end tag: those after the last marker are not.
    """
    end = rows[STATE, SIZE]
    if clear:
        end -= 1
        while end > at and not rows[end, BITS] & MARKER:
            end -= 1
        rows[STATE, CUT] = rows[end, HASH]
    for i in range(at, rows[STATE, SIZE]):
        if rows[i, BITS] & MARKER:
            _find_base(rows, at)
            break
    for i in range(at, end):
        if rows[i, BITS] & LISTED:
            if rows[STATE, CUT] == len(rows):
                # There is no room for more, so the page counts as too deep.
                count_depth(rows, FIRST + rows[STATE, LIMIT])
                break
            copy_row(rows, rows[STATE, CUT], i)
            rows[STATE, CUT] += 1
    rows[STATE, SIZE] = at


@subkernel
def _find_base(rows, at):
    """Keep what was cut off before the last marker below ``at`` from being reopened."""
    at -= 1
    while at >= FIRST and not rows[at, BITS] & MARKER:
        at -= 1
    rows[STATE, BASE] = rows[at, HASH] if at >= FIRST else FIRST + rows[STATE, LIMIT]


@subkernel
def reopen(rows):
    """Reopen the cut-off formatting elements, as a parser does before text and inline elements."""
    for i in range(rows[STATE, BASE], rows[STATE, CUT]):
        rows[COST, REOPENED] += NODE_BYTES + rows[i, END] - rows[i, START]
        push(rows, i, rows[i, BITS])
    rows[STATE, CUT] = rows[STATE, BASE]


@subkernel
def remove_row(rows, at, end):
    """Remove the row ``at`` and move up those after it, up to ``end``."""
    for i in range(at, end - 1):
        copy_row(rows, i, i + 1)


@subkernel
def find(rows, bits, stop):
    """Return the row of the topmost element with any of ``bits``, 0 if an element with any of ``stop`` is above it."""
    for at in range(rows[STATE, SIZE] - 1, FIRST - 1, -1):
        here = rows[at, BITS]
        if here & bits and not here & FOREIGN:
            return at
        if here & stop:
            break
    return 0


@subkernel
def close_kind(rows, bits, stop):
    """Close the element that ``find`` returns, if any, and all above it."""
    at = find(rows, bits, stop)
    if at:
        close(rows, at)


@subkernel
def close_implied(rows, but):
    """Close elements whose end tags may be omitted, from the top down to one with any of the bits ``but``."""
    top = rows[STATE, SIZE] - 1
    while top >= FIRST and rows[top, BITS] & IMPLIED and not rows[top, BITS] & but:
        close(rows, top)
        top -= 1
