"""Pieces of markup that pages under test are built from, and what a real parser makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from resiliparse.parse.html import HTMLTree

from stages.html.guard import MAX_DEPTH, MAX_DEPTH_TAGS, measure

NO_LIMIT: Final = 1 << 62

_NAMES: Final = """div span b i a p li ul dd dt dl h1 h2 form button select option optgroup table tr td th caption tbody
    colgroup object applet template svg math mi desc foreignObject title style script textarea xmp iframe noscript nobr
    font ruby rt rp rb rtc x-y br img input hr pre ol em annotation-xml mglyph g image section details dialog body html
    head frameset noframes marquee summary keygen bgsound basefont label"""
NAMES: Final = _NAMES.split()

PIECES: Final = [
    *(f"<{name}>" for name in NAMES),
    *(f"</{name}>" for name in NAMES),
    *["<div>", "</div>", "<span>", "</span>", "<b>", "</b>", "<svg>", "</svg>", "<table>", "</table>"],
    *["x", " ", ">", "<!--", "-->", "<!-- x -->", "<![CDATA[", "]]>", "<script><!--<script>", "<a href='>", "'>"],
    *["<div/>", "<g/>", "<x/>", "<p/>", "<title/>", "<b a=1>", "<i a=2>", "<font color=a>"],
    "<annotation-xml encoding=text/html>",
]


def tree_depth(html: str) -> int:
    """Return how deep the elements of a parsed page nest, below ``body``."""
    return max((depth for depth, node in walk(html) if node.tag not in ("#text", "#comment")), default=0)


def walk(html: str) -> Iterator[tuple[int, Any]]:
    """Yield the nodes below the ``body`` of a parsed page in order, each with its depth."""
    depth, node = 0, HTMLTree.parse(html).body
    while node is not None:
        if depth:
            yield depth, node
        if node.first_child is not None:
            depth, node = depth + 1, node.first_child
            continue
        while node is not None and node.next is None:
            depth, node = depth - 1, node.parent
        node = node.next if node is not None and depth > 0 else None


def depth_of(html: str) -> int:
    """Return the depth that the compiled scan sees, up to the guard's limits."""
    return measure(html, MAX_DEPTH, MAX_DEPTH_TAGS, NO_LIMIT)[0]


class Counted(Sequence[int]):
    """Numbers that count how often they are read."""

    def __init__(self, values: Any) -> None:
        self._values, self.reads = [np.int64(value) for value in values], 0

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return self._values[at]


def scan_interpreted(modules: SimpleNamespace, html: str, max_depth: int = 512) -> tuple[tuple[int, int, int], int]:
    """Return what the scan returns when it is run as plain Python, and how many bytes and positions it read."""
    data = html.encode()
    page, opens = Counted(data), Counted(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("<")))
    with np.errstate(over="ignore"):
        found = modules.nesting.scan(
            page, opens, modules.names.KNOWN, modules.lexer.WORDS, max_depth, NO_LIMIT, NO_LIMIT, NO_LIMIT, NO_LIMIT
        )
    return tuple(map(int, found[:3])), page.reads + opens.reads  # type: ignore[return-value]
