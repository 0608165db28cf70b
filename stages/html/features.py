"""What the forest is told of each block: of itself, its neighbours, the containers around it, and the page.

Every feature is a whole number or one division of two, so it is the same on every machine; a tree needs no logarithms.
"""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stages.html import elements as el
from stages.html import hints as hi
from stages.html.blocks import (
    CAPITALS,
    CHARS,
    DIGITS,
    ELEMENT,
    END,
    FIRST,
    HINTS,
    KIND,
    LAST,
    LINKED,
    LINKS,
    MARKS,
    MASS,
    PARENT,
    PATH,
    SHORT_PATH,
    START,
    WORDS,
    Page,
)
from stages.html.summary import shares, summaries_of
from stages.jit import argument, kernel, subkernel

DESCENTS: Final = (80, 60, 40)
"""How much of the page's mass, in percent, the heaviest child keeps on each walk down from the body."""
MOST_TEXT: Final = 60
"""An element with more percent of the page's text is not navigation, whatever its name."""
ANCESTORS: Final = 5
WINDOWS: Final = (3, 15, 40)
NEIGHBOURS: Final = (-3, -2, -1, 1, 2, 3)
_SUMS: Final = (CHARS, LINKED, MASS, MARKS, WORDS)
_S_CHARS, _S_LINKED, _S_MASS, _S_MARKS, _S_WORDS, _N_SUMS = range(6)
_KINDS: Final = (
    el.PARAGRAPH,
    el.ITEM,
    el.HEADING,
    el.CELL,
    el.PREFORMATTED,
    el.TERM,
    el.QUOTE,
    el.CAPTION,
    el.BUTTON,
    el.TABLE,
    el.LIST,
    el.NAV,
    el.FOOTER,
    el.HEADER,
    el.ASIDE,
    el.FORM,
    el.ARTICLE,
    el.MAIN,
    el.SECTION,
    el.DETAILS,
    el.ADDRESS,
    el.NOSCRIPT,
)
_FEW: Final = (el.NAV, el.FOOTER, el.HEADER, el.ASIDE, el.FORM)
_SMALL_KINDS: Final = el.NAV | el.FOOTER | el.HEADER | el.ASIDE | el.FORM | el.DETAILS
FEATURES: Final = 193
"""How many features there are."""


@subkernel
def _over(part, whole):
    return np.float32(part) / np.float32(whole) if whole > 0 else np.float32(0)


@subkernel
def _sum(sums, which, first, last):
    return sums[last, which] - sums[first, which]


@subkernel
def _inherit(elements, sums, inherited):
    """Fill ``inherited`` with the hints and kinds of every element and all around it."""
    whole = sums[len(sums) - 1, _S_CHARS]
    inherited[0] = 0
    for e in range(1, len(elements)):
        chars = _sum(sums, _S_CHARS, elements[e, FIRST], elements[e, LAST])
        hints, kind = elements[e, HINTS], elements[e, KIND]
        if chars * 100 > whole * MOST_TEXT:
            hints &= ~hi.ONLY_SMALL
            kind &= ~_SMALL_KINDS
        if kind & el.BODY:
            hints = 0
        parent = elements[e, PARENT]
        inherited[e, 0] = inherited[parent, 0] | hints
        inherited[e, 1] = inherited[parent, 1] | kind
        inherited[e, 2] = inherited[parent, 2] + 1


@subkernel
def _descend(elements, sums, heaviest, percent, which):
    """Return the element reached from the page down, while the heaviest child keeps ``percent`` of the whole."""
    whole = sums[len(sums) - 1, which]
    e = 0
    while heaviest[e] and _sum(sums, which, elements[heaviest[e], FIRST], elements[heaviest[e], LAST]) * 100 >= (
        percent * whole
    ):
        e = heaviest[e]
    return e


@subkernel
def _find_heaviest(elements, sums, which, heaviest):
    heaviest[:] = 0
    for e in range(1, len(elements)):
        parent = elements[e, PARENT]
        weight = _sum(sums, which, elements[e, FIRST], elements[e, LAST])
        best = heaviest[parent]
        if weight > 0 and (not best or weight > _sum(sums, which, elements[best, FIRST], elements[best, LAST])):
            heaviest[parent] = e


@subkernel
def _group(keys, blocks, table, groups, sizes):
    """Sum blocks with equal keys: ``groups`` is the group of each, ``sizes`` (blocks, chars, linked, mass) of each."""
    mask = len(table) - 1
    table[:] = -1
    count = 0
    for b in range(len(keys)):
        slot = np.int64((np.uint64(keys[b]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
        while table[slot] >= 0 and keys[table[slot]] != keys[b]:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = b
            groups[b] = count
            sizes[count] = 0
            count += 1
        group = groups[table[slot]]
        groups[b] = group
        sizes[group, 0] += 1
        sizes[group, 1] += blocks[b, CHARS]
        sizes[group, 2] += blocks[b, LINKED]
        sizes[group, 3] += blocks[b, MASS]


@subkernel
def _own(x, k, b, blocks, elements, inherited, text):
    row = blocks[b]
    chars = row[CHARS]
    x[b, k] = chars
    x[b, k + 1] = row[WORDS]
    x[b, k + 2] = row[MARKS]
    x[b, k + 3] = _over(row[MARKS], chars)
    x[b, k + 4] = _over(row[LINKED], chars)
    x[b, k + 5] = row[LINKS]
    x[b, k + 6] = _over(row[DIGITS], chars)
    x[b, k + 7] = _over(row[CAPITALS], chars)
    x[b, k + 8] = row[MASS]
    last = text[row[END] - 1]
    x[b, k + 9] = last == 0x2E or last == 0x21 or last == 0x3F or last >= 0x80
    x[b, k + 10] = last == 0x3A
    k += 11
    kind = inherited[row[ELEMENT], 1]
    own = elements[row[ELEMENT], KIND]
    level = 0
    for at in range(6):
        if own >> (el.LEVELS + at) & 1:
            level = at + 1
    x[b, k] = level
    k += 1
    for at in range(len(_KINDS)):
        x[b, k + at] = (own & _KINDS[at] != 0) * 2 + (kind & _KINDS[at] != 0)
    k += len(_KINDS)
    hints = inherited[row[ELEMENT], 0]
    mine = elements[row[ELEMENT], HINTS] | elements[elements[row[ELEMENT], PARENT], HINTS]
    for at in range(hi.HINTS):
        x[b, k + at] = (hints >> at) & 1
        x[b, k + hi.HINTS + at] = (mine >> at) & 1
    return k + 2 * hi.HINTS


@subkernel
def _around(x, k, b, blocks, sums):
    n = len(blocks)
    whole = sums[n, _S_MASS]
    for offset in NEIGHBOURS:
        at = b + offset
        outside = at < 0 or at >= n
        x[b, k] = -1 if outside else blocks[at, CHARS]
        x[b, k + 1] = -1 if outside else _over(blocks[at, LINKED], blocks[at, CHARS])
        x[b, k + 2] = -1 if outside else blocks[at, MARKS]
        k += 3
    for width in WINDOWS:
        first, last = max(b - width, 0), min(b + width + 1, n)
        chars = _sum(sums, _S_CHARS, first, last)
        mass = _sum(sums, _S_MASS, first, last)
        x[b, k] = _over(mass, whole)
        x[b, k + 1] = _over(mass, chars)
        x[b, k + 2] = _over(_sum(sums, _S_LINKED, first, last), chars)
        x[b, k + 3] = _over(chars, last - first)
        k += 4
    return k


@subkernel
def _above(x, k, b, blocks, elements, sums):
    """Of the containers around a block, each with more text than the one before."""
    n = len(blocks)
    e = blocks[b, ELEMENT]
    chars = np.int64(0)
    for _ in range(ANCESTORS):
        while e and _sum(sums, _S_CHARS, elements[e, FIRST], elements[e, LAST]) <= chars:
            e = elements[e, PARENT]
        first, last = elements[e, FIRST], elements[e, LAST]
        chars = _sum(sums, _S_CHARS, first, last)
        mass = _sum(sums, _S_MASS, first, last)
        x[b, k] = _over(mass, sums[n, _S_MASS])
        x[b, k + 1] = _over(chars, sums[n, _S_CHARS])
        x[b, k + 2] = _over(_sum(sums, _S_LINKED, first, last), chars)
        x[b, k + 3] = _over(mass, chars)
        x[b, k + 4] = last - first
        x[b, k + 5] = _over(b - first, last - first)
        k += 6
    return k


@subkernel
def _within(x, k, b, blocks, elements, inherited, sums, reached):
    """Of the range that holds most of the page's mass."""
    n = len(blocks)
    first, last = elements[reached, FIRST], elements[reached, LAST]
    inside = first <= b < last
    mass, chars = _sum(sums, _S_MASS, first, last), _sum(sums, _S_CHARS, first, last)
    x[b, k] = inside
    x[b, k + 1] = 0 if inside else b - first if b < first else b - last + 1
    x[b, k + 2] = _over(b - first, last - first) if inside else -1
    x[b, k + 3] = _over(last - first, n)
    x[b, k + 4] = _over(mass, chars)
    x[b, k + 5] = _over(chars, sums[n, _S_CHARS])
    x[b, k + 6] = inherited[blocks[b, ELEMENT], 2] - inherited[reached, 2]
    between = 0 if inside else (_sum(sums, _S_CHARS, b, first) if b < first else _sum(sums, _S_CHARS, last, b))
    x[b, k + 7] = _over(between, sums[n, _S_CHARS])
    return k + 8


@subkernel
def _alike(x, k, b, sums, groups, sizes):
    """Of the blocks under the same path."""
    n = len(sums) - 1
    size = sizes[groups[b]]
    x[b, k] = size[0]
    x[b, k + 1] = _over(size[1], size[0])
    x[b, k + 2] = _over(size[2], size[1])
    x[b, k + 3] = _over(size[3], sums[n, _S_MASS])
    x[b, k + 4] = _over(size[1], sums[n, _S_CHARS])
    return k + 5


@subkernel
def _place(x, k, b, blocks, elements, sums, headings):
    """Of the page, and of where in it the block is; ``headings``: the last and next heading, h1 and the first h1."""
    n = len(blocks)
    x[b, k] = n
    x[b, k + 1] = sums[n, _S_CHARS]
    x[b, k + 2] = sums[n, _S_MASS]
    x[b, k + 3] = _over(sums[n, _S_MASS], sums[n, _S_CHARS])
    x[b, k + 4] = _over(sums[n, _S_LINKED], sums[n, _S_CHARS])
    x[b, k + 5] = _over(b, n)
    x[b, k + 6] = _over(sums[b, _S_CHARS], sums[n, _S_CHARS])
    x[b, k + 7] = _over(sums[b, _S_MASS], sums[n, _S_MASS])
    x[b, k + 8] = b
    x[b, k + 9] = n - b
    x[b, k + 10] = b - headings[b, 0] if headings[b, 0] >= 0 else -1
    x[b, k + 11] = headings[b, 1] - b if headings[b, 1] >= 0 else -1
    x[b, k + 12] = b - headings[b, 2] if headings[b, 2] >= 0 else -1
    x[b, k + 13] = headings[b, 3] - b if headings[b, 3] >= 0 else -1
    x[b, k + 14] = headings[b, 4]
    return k + 15


@subkernel
def _find_headings(blocks, elements, headings):
    n = len(blocks)
    last = last_h1 = -1
    level = 0
    for b in range(n):
        kind = elements[blocks[b, ELEMENT], KIND]
        headings[b, 0], headings[b, 2], headings[b, 4] = last, last_h1, level
        if kind & el.HEADING:
            last = b
            for at in range(6):
                if kind >> (el.LEVELS + at) & 1:
                    level = at + 1
            if kind & el.H1:
                last_h1 = b
    following = following_h1 = -1
    for b in range(n - 1, -1, -1):
        headings[b, 1], headings[b, 3] = following, following_h1
        kind = elements[blocks[b, ELEMENT], KIND]
        if kind & el.HEADING:
            following = b
        if kind & el.H1:
            following_h1 = b


@subkernel
def _find_told(told, blocks, most, where, near):
    """Fill the greatest share of long blocks, where it is, and the share of the characters around each block."""
    n = len(blocks)
    for at in range(2):
        total, chars = np.float64(0), 0
        first = last = 0
        for b in range(n):
            if told[at, b] * blocks[b, CHARS] > most[at]:
                most[at], where[at] = told[at, b] * blocks[b, CHARS], b
            while last < min(b + 6, n):
                chars += blocks[last, CHARS]
                total += np.rint(told[at, last] * blocks[last, CHARS])
                last += 1
            while first < b - 5:
                chars -= blocks[first, CHARS]
                total -= np.rint(told[at, first] * blocks[first, CHARS])
                first += 1
            near[at, b] = _over(total, chars)


@kernel
def fill(
    text: npt.NDArray[np.uint8],
    elements: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
    told: npt.NDArray[np.float32],
    x: npt.NDArray[np.float32],
) -> int:
    """Fill ``x``, float32 of shape (blocks, ``FEATURES``); return how many columns are filled.

    Args:
        text: of the page.
        elements: of the page.
        blocks: of the page.
        told: the ``shares`` of each block in what the page says of itself, shape (2, blocks).
        x: what is filled.
    """
    n = len(blocks)
    sums = np.zeros((n + 1, _N_SUMS), np.int64)
    for b in range(n):
        for which in range(_N_SUMS):
            sums[b + 1, which] = sums[b, which] + blocks[b, _SUMS[which]]
    inherited = np.zeros((len(elements), 3), np.int64)
    _inherit(elements, sums, inherited)
    which = _S_MASS if sums[n, _S_MASS] > 0 else _S_CHARS
    heaviest = np.zeros(len(elements), np.int64)
    _find_heaviest(elements, sums, which, heaviest)
    headings = np.zeros((n, 5), np.int64)
    _find_headings(blocks, elements, headings)
    size = 16
    while size < 2 * n:
        size *= 2
    table = np.empty(size, np.int64)
    groups, sizes, keys = np.empty((4, n), np.int64), np.empty((4, n, 4), np.int64), np.empty(n, np.int64)
    for which_key in range(4):
        for b in range(n):
            e = blocks[b, ELEMENT]
            if which_key == 0:
                keys[b] = elements[e, PATH]
            elif which_key == 1:
                keys[b] = elements[elements[e, PARENT], PATH]
            elif which_key == 2:
                keys[b] = elements[e, SHORT_PATH]
            else:
                value = np.uint64(0xCBF29CE484222325)
                for i in range(blocks[b, START], blocks[b, END]):
                    value = (value ^ np.uint64(text[i])) * np.uint64(0x100000001B3)
                keys[b] = np.int64(value)
        _group(keys, blocks, table, groups[which_key], sizes[which_key])
    reached = np.empty(len(DESCENTS), np.int64)
    for at in range(len(DESCENTS)):
        reached[at] = _descend(elements, sums, heaviest, DESCENTS[at], which)
    most, where, told_near = np.zeros(2, np.float32), np.zeros(2, np.int64), np.zeros((2, n), np.float32)
    _find_told(told, blocks, most, where, told_near)
    k = 0
    for b in range(n):
        k = _own(x, 0, b, blocks, elements, inherited, text)
        k = _around(x, k, b, blocks, sums)
        k = _above(x, k, b, blocks, elements, sums)
        for at in range(len(DESCENTS)):
            k = _within(x, k, b, blocks, elements, inherited, sums, reached[at])
        for at in range(3):
            k = _alike(x, k, b, sums, groups[at], sizes[at])
        x[b, k] = sizes[3, groups[3, b], 0]
        k = _place(x, k + 1, b, blocks, elements, sums, headings)
        for at in range(2):
            x[b, k] = told[at, b]
            x[b, k + 1] = most[at]
            x[b, k + 2] = b - where[at] if most[at] > 0 else 0
            x[b, k + 3] = told_near[at, b]
            k += 4
    return k


def features_of(page: Page) -> npt.NDArray[np.float32]:
    """Return what there is to know of each block, float32 of shape (blocks, ``FEATURES``)."""
    x = np.zeros((len(page.blocks), FEATURES), np.float32)
    if len(x):
        text, blocks = argument(np.frombuffer(page.text, np.uint8)), argument(page.blocks)
        told = [shares(argument(np.frombuffer(said, np.uint8)), text, blocks) for said in summaries_of(page.source)]
        filled = fill(text, argument(page.elements), blocks, argument(np.stack(told)), x)
        assert filled == FEATURES
    return x
