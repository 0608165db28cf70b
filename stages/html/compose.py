"""The text of the blocks that are kept: plain, or as Markdown with headings, lists, tables and code."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stages.html import structure as st
from stages.html.blocks import (
    CODE_BEGINS,
    ELEMENT,
    END,
    FROM,
    LINK_BEGINS,
    LINK_ENDS,
    POSITION,
    START,
    TO,
    WHAT,
    Page,
)

Form: TypeAlias = Literal["plain", "markdown", "markdown_links"]
"""How text is written: plain, where lists and tables still have their lines; as Markdown; and that with links."""

_INDENT: Final = "    "
_TICKS: Final = re.compile(r"`+")
_ESCAPES: Final = ((b"&quot;", b'"'), (b"&lt;", b"<"), (b"&gt;", b">"), (b"&nbsp;", b"%C2%A0"), (b"&amp;", b"&"))
_UNSAFE: Final = bytes(range(33)) + b'()<>"'

Place: TypeAlias = Sequence[int]


def composed(page: Page, kept: npt.NDArray[np.bool_], form: Form = "plain") -> str:
    """Return the text of the blocks that are kept, in the order of the page.

    Args:
        page: the page.
        kept: which of its blocks, bool of shape (blocks,).
        form: how to write them.
    """
    rows = np.flatnonzero(kept)
    if not len(rows):
        return ""
    blocks = page.blocks[rows]
    places = st.structure_of(page)[blocks[:, ELEMENT]].tolist()
    bounds = blocks[:, [START, END]].tolist()
    if form == "plain":
        raw = [page.text[start:end] for start, end in bounds]
    else:
        raw = _with_marks(page, bounds, places, form == "markdown_links")
    texts = [text.decode("utf-8", "replace") for text in raw]
    return "".join(_pieces(texts, places, form != "plain"))


def _with_marks(page: Page, bounds: list[list[int]], places: Sequence[Place], links: bool) -> list[bytes]:
    """Return the text of blocks with the marks of code, and of links where wanted. Code blocks have none inside."""
    spans = page.spans.tolist()
    texts, at = [], 0
    for (start, end), place in zip(bounds, places, strict=True):
        while at < len(spans) and spans[at][POSITION] < start:
            at += 1
        inside = []
        while at < len(spans) and spans[at][POSITION] <= end:
            inside.append(spans[at])
            at += 1
        texts.append(page.text[start:end] if place[st.CODE] else _marked(page, start, end, inside, links))
    return texts


def _marked(page: Page, start: int, end: int, spans: Sequence[Sequence[int]], links: bool) -> bytes:
    """Return the text of one block with its spans marked; a span that the block does not hold whole is left out."""
    inserted: list[tuple[int, int, bytes]] = []
    opened: list[tuple[int, Sequence[int]]] = []
    for order, span in enumerate(spans):
        if span[WHAT] in (LINK_BEGINS, CODE_BEGINS):
            opened.append((order, span))
        elif opened and opened[-1][1][WHAT] == span[WHAT] - 1:
            began, first = opened.pop()
            begin, finish = first[POSITION], span[POSITION]
            text = page.text[begin:finish]
            if not text.strip() or (span[WHAT] == LINK_ENDS and not links):
                continue
            before, after = (b"[", b"](%s)") if span[WHAT] == LINK_ENDS else _fence(text)
            if span[WHAT] == LINK_ENDS:
                after %= _address(page.source[first[FROM] : first[TO]])
            inserted.append((begin + len(text) - len(text.lstrip()), began, before))
            inserted.append((finish - len(text) + len(text.rstrip()), order, after))
    pieces, last = [], start
    for position, _, mark in sorted(inserted, key=lambda one: one[:2]):
        pieces += [page.text[last:position], mark]
        last = position
    return b"".join([*pieces, page.text[last:end]])


def _fence(text: bytes) -> tuple[bytes, bytes]:
    """Return the marks around code: more backticks than it has in a row."""
    longest = max((len(run) for run in re.findall(rb"`+", text)), default=0)
    ticks = b"`" * (longest + 1)
    return (ticks, ticks) if not longest else (ticks + b" ", b" " + ticks)


def _address(written: bytes) -> bytes:
    for escape, char in _ESCAPES:
        written = written.replace(escape, char)
    return b"".join(b"%%%02X" % byte if byte in _UNSAFE else bytes((byte,)) for byte in written.strip())


def _pieces(texts: Sequence[str], places: Sequence[Place], markdown: bool) -> Iterator[str]:
    """Yield the pieces of the text: each block or table after what separates it from the one before."""
    last: Place | None = None
    begun = 0
    for table, group in itertools.groupby(zip(texts, places, strict=True), key=lambda one: one[1][st.TABLE]):
        if table:
            yield "\n\n" if last else ""
            yield _table(list(group), markdown)
            last = [0] * st.COLUMNS
            continue
        for text, place in group:
            # Items come in the order of the page, so one whose row is further on has not begun.
            begins = place[st.ITEM] > begun
            quoted = markdown and place[st.QUOTE]
            if last:
                close = begins and place[st.TOP_LIST] == last[st.TOP_LIST] and place[st.QUOTE] == last[st.QUOTE]
                joined = quoted and place[st.QUOTE] == last[st.QUOTE]
                yield "\n" if close else "\n>\n" if joined else "\n\n"
            written = _block(text, place, begins, markdown)
            yield "> " + written.replace("\n", "\n> ") if quoted else written
            begun = max(begun, place[st.ITEM])
            last = place


def _block(text: str, place: Place, begins: bool, markdown: bool) -> str:
    """Return a block with the marks of its kind, and indented where it is inside an item."""
    if place[st.CODE]:
        ticks = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
        written = f"{ticks}\n{text}\n{ticks}" if markdown else text
    elif place[st.LEVEL]:
        joined = text.replace("\n", " ")
        written = f"{'#' * place[st.LEVEL]} {joined}" if markdown else joined
    else:
        written = text
    if not place[st.ITEM]:
        return written
    indent = _INDENT * (place[st.DEPTH] - 1)
    marker = f"{place[st.NUMBER]}. " if place[st.NUMBER] else "- "
    rest = written.replace("\n", "\n" + indent + " " * len(marker))
    return indent + (marker if begins else " " * len(marker)) + rest


def _table(cells: Sequence[tuple[str, Place]], markdown: bool) -> str:
    """Return the rows of a table as lines of cells; a cell of more blocks is one line."""
    rows: list[list[str]] = []
    last_row = 0
    for text, place in cells:
        text = text.replace("\n", " ")
        if markdown:
            text = text.replace("|", "\\|")
        if place[st.ROW] != last_row:
            rows.append([])
            last_row = place[st.ROW]
        row = rows[-1]
        if len(row) > place[st.COLUMN]:
            row[-1] += " " + text
        else:
            row += [""] * (min(place[st.COLUMN], _MOST_COLUMNS) - len(row)) + [text]
    if not markdown:
        return "\n".join(" | ".join(row) for row in rows)
    width = max(map(len, rows))
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


_MOST_COLUMNS: Final = 512
"""Empty cells before one with text are written up to here, so that text stays in proportion to the page."""
