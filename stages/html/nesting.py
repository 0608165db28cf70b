"""How deep the elements of a page nest, and the most attributes of a tag, in one compiled pass over its UTF-8 bytes."""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-calls=False

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stages.html.lexer import (
    ATTRIBUTES,
    BASE,
    BITS,
    COMPARED,
    COST,
    CUT,
    CUT_PER_OPEN,
    DEEPEST,
    END,
    FIRST,
    LIMIT,
    OPTIONS,
    REOPENED,
    ROOT_ATTRIBUTES,
    SIZE,
    STATE,
    TAG,
    bits_of,
    is_letter,
    raw_end,
    read_attributes,
    read_name,
    skip_markup,
)
from stages.html.names import FOREIGN, FORMATTING, OPTION, ROOT
from stages.html.stack import reopen
from stages.html.tree import end_tag, start_tag
from stages.jit import kernel, subkernel


@subkernel
def _count_comparisons(rows: npt.NDArray[np.int64], bits: int, closing: bool) -> None:
    """Count what a parser compares at a tag.

    Each attribute with all before it; those of a formatting element with those of all alike that are open or wait to be
    reopened; those of ``html`` and ``body`` with those that they have; and each option with all before it.
    """
    attributes = rows[STATE, ATTRIBUTES]
    compared = attributes * attributes
    if not closing:
        if bits & FORMATTING:
            compared *= 1 + rows[STATE, SIZE] - FIRST + rows[STATE, CUT] - rows[STATE, BASE]
        elif bits & ROOT:
            compared += attributes * rows[COST, ROOT_ATTRIBUTES]
            rows[COST, ROOT_ATTRIBUTES] += attributes
        elif bits & OPTION:
            compared += rows[COST, OPTIONS]
            rows[COST, OPTIONS] += 1
    rows[COST, COMPARED] += compared


@kernel
def scan(
    page: npt.NDArray[np.uint8],
    opens: npt.NDArray[np.int64],
    known: npt.NDArray[np.int64],
    words: npt.NDArray[np.uint8],
    max_depth: int,
    max_depth_tags: int,
    max_attributes: int,
    max_reopened: int,
    max_compared: int,
) -> tuple[int, int, int, int, int]:
    """Measure UTF-8 ``page``; stop where a maximum is exceeded.

    Returns:
        (depth, tags, most attributes of a tag, bytes that reopening adds to the tree, comparisons of a parser).

    Args:
        page: the bytes, shape (n,).
        opens: the indices of every ``<`` among them, ascending.
        known: ``names.KNOWN``.
        words: ``lexer.WORDS``.
        max_depth: elements nested inside each other.
        max_depth_tags: depth times tags.
        max_attributes: attributes of one tag.
        max_reopened: bytes of elements that are reopened.
        max_compared: comparisons of attributes, and of options.
    """
    limit = max_depth + 2
    rows = np.empty((FIRST + limit + CUT_PER_OPEN * limit, 7), np.int64)
    # The row below the open elements, NOTHING, has no bits, so that nothing needs to ask whether the stack is empty.
    rows[:FIRST] = 0
    rows[STATE, SIZE], rows[STATE, LIMIT] = FIRST, limit
    rows[STATE, CUT] = rows[STATE, BASE] = FIRST + limit
    tags = most = i = at = 0
    end = len(page)
    while i < end:
        while at < len(opens) and opens[at] < i:
            at += 1
        is_text = at == len(opens) or opens[at] != i or i + 1 >= end
        byte = np.uint8(0) if is_text else page[i + 1]
        closing = byte == 0x2F
        if closing and i + 2 < end:
            byte = page[i + 2]
        if is_text or not (is_letter(byte) or closing or byte == 0x21 or byte == 0x3F):
            if rows[STATE, CUT] > rows[STATE, BASE]:
                reopen(rows)
            at += at < len(opens) and opens[at] == i
            i = opens[at] if at < len(opens) else end
        elif not is_letter(byte):
            i = skip_markup(page, i, rows[rows[STATE, SIZE] - 1, BITS] & FOREIGN, words)
        else:
            tags += 1
            i = read_name(page, i + 1 + closing, rows)
            bits = bits_of(rows, known)
            i = read_attributes(page, i, rows, words, bits)
            rows[TAG, END] = i
            most = max(most, rows[STATE, ATTRIBUTES])
            _count_comparisons(rows, bits, closing)
            if closing:
                end_tag(page, rows, bits)
            elif start_tag(page, rows, bits):
                i = raw_end(page, opens, at, i, rows, bits)
            depth = rows[STATE, DEEPEST]
            if most > max_attributes or depth > max_depth or depth * tags > max_depth_tags:
                break
            if rows[COST, REOPENED] > max_reopened or rows[COST, COMPARED] > max_compared:
                break
    reopen(rows)
    return rows[STATE, DEEPEST], tags, most, rows[COST, REOPENED], rows[COST, COMPARED]
