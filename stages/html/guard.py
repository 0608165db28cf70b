"""A guard against pages that would stall a parser: their tags are scanned, in linear time, before they are parsed.

Decision 12 says what it stops, what it costs, and what else was weighed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stages.html.lexer import WORDS
from stages.html.names import KNOWN
from stages.html.nesting import scan
from stages.jit import argument

MAX_DEPTH: Final = 512
"""The depth to which Blink and WebKit build a document tree; no browser displays a deeper page as written."""
MAX_ATTRIBUTES: Final = 2048
"""Attributes of one tag; a parser compares each with all before it."""
MAX_DEPTH_TAGS: Final = 10_000_000
"""Depth times tags; items of nested lists are indented by their depth, so this bounds the extracted text."""
MAX_REOPENED_BYTES: Final = 1 << 20
"""Bytes of tags, and 64 each, that a parser opens again after what closed them; a real page has a few thousand."""
MAX_COMPARED: Final = 50_000_000
"""Comparisons of attributes with attributes, and of options with options, some nanoseconds each."""
SMALL_TAGS: Final = 4096
SMALL_CHARS: Final = 64 << 10
"""A page with fewer tags in fewer characters is not scanned."""
_DEEPEST: Final = 8192
"""The depth at which a page with few tags is too complex: a parser reopens formatting elements again and again."""
_NO_LIMIT: Final = 1 << 62

_WORDS: Final = argument(WORDS)
_KNOWN: Final = argument(KNOWN)


def too_complex(html: str) -> tuple[float, str] | None:
    """Return why a page would take a parser time or memory far out of proportion to its length; None if it would not.

    Returns:
        (measure, what it is) of the first limit that the page exceeds.
    """
    many = html.count("<") >= SMALL_TAGS
    if not many and len(html) < SMALL_CHARS:
        return None
    max_depth = MAX_DEPTH if many else _DEEPEST
    depth, tags, attributes = measure(html, max_depth, MAX_DEPTH_TAGS if many else _NO_LIMIT, MAX_ATTRIBUTES)
    if attributes > MAX_ATTRIBUTES:
        return attributes, f"a tag of {attributes} attributes, the limit is {MAX_ATTRIBUTES}"
    if depth > max_depth:
        return depth, f"elements nested deeper than {max_depth}"
    if many and depth * tags > MAX_DEPTH_TAGS:
        return depth * tags, f"{tags} tags nested up to {depth} deep"
    return None


def too_costly(html: str) -> tuple[float, str] | None:
    """Return why a page would take a parser time or memory far out of proportion to its length; None if it would not.

    Stricter than ``too_complex``: every page is scanned, however small, and what a parser reopens and compares counts.

    Returns:
        (measure, what it is) of the first limit that the page exceeds.
    """
    found = _scan(html, MAX_DEPTH, MAX_DEPTH_TAGS, MAX_ATTRIBUTES, MAX_REOPENED_BYTES, MAX_COMPARED)
    depth, tags, attributes, reopened, compared = found
    if attributes > MAX_ATTRIBUTES:
        return attributes, f"a tag of {attributes} attributes, the limit is {MAX_ATTRIBUTES}"
    if depth > MAX_DEPTH:
        return depth, f"elements nested deeper than {MAX_DEPTH}"
    if reopened > MAX_REOPENED_BYTES:
        return reopened, f"formatting reopened again and again, to {reopened} bytes and more"
    if compared > MAX_COMPARED:
        return compared, f"attributes or options compared {compared} times and more"
    if depth * tags > MAX_DEPTH_TAGS:
        return depth * tags, f"{tags} tags nested up to {depth} deep"
    return None


def measure(html: str, max_depth: int, max_depth_tags: int, max_attributes: int) -> tuple[int, int, int]:
    """Return how deep elements nest, the number of tags, and the most attributes of one tag.

    Stops where one of the maxima is exceeded, of depth, depth times tags, or attributes. The depth is that of the stack
    of open elements, followed as a parser does. Parts of tables, and elements such as ``form`` that leave the stack
    before their content does, are left out, so the tree may be deeper by a small factor.
    """
    return _scan(html, max_depth, max_depth_tags, max_attributes, _NO_LIMIT, _NO_LIMIT)[:3]


def _scan(
    html: str, max_depth: int, max_depth_tags: int, max_attributes: int, max_reopened: int, max_compared: int
) -> tuple[int, int, int, int, int]:
    page = argument(np.frombuffer(html.encode("utf-8", "replace"), np.uint8))
    opens = argument(np.flatnonzero(page == ord("<")))
    maxima = max_depth, max_depth_tags, max_attributes, max_reopened, max_compared
    return scan(page, opens, _KNOWN, _WORDS, *maxima)
