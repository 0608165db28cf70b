"""A guard against pages built to stall a parser: their tags are scanned, in linear time, before they are parsed."""

from __future__ import annotations

from typing import Final

import numpy as np

from stages.html.lexer import WORDS
from stages.html.names import KNOWN
from stages.html.nesting import scan
from stages.jit import argument

MAX_DEPTH: Final = 512
"""The depth to which Blink and WebKit build a document tree: no browser shows a page that is deeper."""
MAX_ATTRIBUTES: Final = 2048
"""Attributes of one tag: parsers compare each with all before it."""
MAX_DEPTH_TAGS: Final = 10_000_000
"""Depth times tags: nested lists are indented by their depth, so this bounds the text that comes out."""
SMALL_TAGS: Final = 4096
SMALL_CHARS: Final = 64 << 10
"""Fewer tags, or attributes in fewer characters, cannot cost more than about a second: such pages are not scanned."""
_DEEPEST: Final = 8192
"""Depth at which a page is too complex even with few tags: formatting elements that a parser opens again."""
_NO_LIMIT: Final = 1 << 62

_WORDS: Final = argument(WORDS)
_KNOWN: Final = argument(KNOWN)


def too_complex(html: str) -> tuple[float, str] | None:
    """Return whether a page would take a parser time or memory far out of proportion to its length.

    Returns:
        (measure, what it is) of the first limit that the page exceeds, or None.
    """
    many = html.count("<") >= SMALL_TAGS
    if not many and len(html) < SMALL_CHARS:
        return None
    max_depth = MAX_DEPTH if many else _DEEPEST
    depth, tags, attributes = _scan(html, max_depth, MAX_DEPTH_TAGS if many else _NO_LIMIT, MAX_ATTRIBUTES)
    if attributes > MAX_ATTRIBUTES:
        return attributes, f"a tag of {attributes} attributes, the limit is {MAX_ATTRIBUTES}"
    if depth > max_depth:
        return depth, f"elements nested deeper than {max_depth}"
    if many and depth * tags > MAX_DEPTH_TAGS:
        return depth * tags, f"{tags} tags nested up to {depth} deep"
    return None


def most_attributes(html: str) -> int:
    """Return the most attributes of one tag."""
    return _scan(html, _DEEPEST, _NO_LIMIT, _NO_LIMIT)[2]


def nesting(html: str) -> tuple[int, int]:
    """Return how deep elements nest, and the number of tags; stops where a limit is exceeded.

    Follows the stack of open elements as a parser does. Elements of tables and such as ``form`` that leave the stack
    before what they hold are left out, so the depth of the tree may be a small multiple.
    """
    return _scan(html, MAX_DEPTH, MAX_DEPTH_TAGS, _NO_LIMIT)[:2]


def _scan(html: str, max_depth: int, max_depth_tags: int, max_attributes: int) -> tuple[int, int, int]:
    page = argument(np.frombuffer(html.encode("utf-8", "replace"), np.uint8))
    opens = argument(np.flatnonzero(page == ord("<")))
    return scan(page, opens, _KNOWN, _WORDS, max_depth, max_depth_tags, max_attributes)
