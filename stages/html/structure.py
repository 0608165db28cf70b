"""What lists, tables and quotes each element of a page is in, as far as text shows them."""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stages.html import elements as el
from stages.html.blocks import FIRST, KIND, LAST, PARENT, Page
from stages.jit import argument, kernel, subkernel

TABLE, ROW, CELL, COLUMN, ITEM, TOP_LIST, DEPTH, NUMBER, LEVEL, CODE, QUOTE, COLUMNS = range(12)
"""Columns: the rows of the table, table row and cell around an element, and which cell of its row that is, from 0; the
innermost item, the outermost list, how many lists, and the item's number, 0 where the list has none; the level of a
heading; 1 for preformatted text; the innermost quote. All are 0 where there is none."""
MAX_CELL_BLOCKS: Final = 4
"""A table with a fuller cell lays out a page; so does one with a heading or another table inside, or of one column."""
_LAYOUT, _BROAD_ROWS, _CARD, _COUNT = range(4)


@subkernel
def _inherit(elements, e, places, notes):
    """Fill the places of ``e`` from its parent's, and note what they show of tables and items."""
    parent = elements[e, PARENT]
    for column in range(COLUMNS):
        places[e, column] = places[parent, column]
    kind = elements[e, KIND]
    p = places[e]
    if kind & el.TABLE:
        notes[p[TABLE], _LAYOUT] = 1
        p[TABLE], p[ROW], p[CELL], p[ITEM], p[TOP_LIST], p[DEPTH] = e, 0, 0, 0, 0, 0
    elif kind & el.ROW:
        p[ROW], p[CELL] = e, 0
    elif kind & el.CELL and p[ROW]:
        p[CELL], p[COLUMN] = e, notes[p[ROW], _COUNT]
        notes[p[ROW], _COUNT] += 1
        notes[p[TABLE], _BROAD_ROWS] += p[COLUMN] == 1
        if elements[e, LAST] - elements[e, FIRST] > MAX_CELL_BLOCKS:
            notes[p[TABLE], _LAYOUT] = 1
    elif kind & el.LIST:
        p[ITEM] = 0
        p[DEPTH] += 1
        if p[DEPTH] == 1:
            p[TOP_LIST] = e
    elif kind & el.ITEM and p[TOP_LIST] and elements[parent, KIND] & el.LIST:
        p[ITEM] = e
        notes[parent, _COUNT] += elements[e, LAST] > elements[e, FIRST]
        p[NUMBER] = notes[parent, _COUNT] if elements[parent, KIND] & el.ORDERED else 0
    elif kind & el.HEADING:
        notes[p[TABLE], _LAYOUT] = 1
        if p[DEPTH] and p[ITEM]:
            notes[p[TOP_LIST], _CARD] = 1
        p[LEVEL] = 1
        while not kind >> (el.LEVELS + p[LEVEL] - 1) & 1:
            p[LEVEL] += 1
    elif kind & el.PREFORMATTED:
        p[CODE] = 1
    elif kind & el.QUOTE:
        p[QUOTE] = e


@kernel
def find(elements: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of elements, int64 of shape (elements, ``COLUMNS``)."""
    n = len(elements)
    places = np.zeros((n, COLUMNS), np.int64)
    notes = np.zeros((n, 4), np.int64)
    for e in range(1, n):
        _inherit(elements, e, places, notes)
    for e in range(1, n):
        table = places[e, TABLE]
        if table and (notes[table, _LAYOUT] or notes[table, _BROAD_ROWS] < 2 or not places[e, CELL]):
            places[e, TABLE] = places[e, ROW] = places[e, CELL] = 0
        if notes[places[e, TOP_LIST], _CARD]:
            places[e, TOP_LIST] = places[e, ITEM] = places[e, DEPTH] = places[e, NUMBER] = 0
    return places


def structure_of(page: Page) -> npt.NDArray[np.int64]:
    """Return the place of every element of a page, int64 of shape (elements, ``COLUMNS``)."""
    return find(argument(page.elements))
