"""A scan of HTML tags that is linear in the page, for questions that must be answered before the page is parsed."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[\s/]*+{0}[^\s/>][^\s/>=]*+)"
_VALUE: Final = r"(?:\s*+=\s*+(?:\"{0}[^\"]*+)\"|'{0}[^']*+)'|{0}[^\s>\"'][^\s>]*+)|(?=>)))?+"
ATTRIBUTES: Final = re.compile((_NAME + _VALUE).format("("), re.ASCII)
"""One attribute: name, then its value in double, in single, or in no quotes."""
TAGS: Final = re.compile(
    r"<!--(?:-?>|.*?--!?>|.*)"
    r"|<(/?[a-z][^\s/>]*+)((?:" + (_NAME + _VALUE).format("(?:") + r")*+)([\s/]*+)(?:>|\Z)"
    r"|<[!/?][^>]*+(?:>|\Z)",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
"""A comment, or a tag: its name with the slash of an end tag, its attributes, and what stands before its end.

A tag without an end reaches to the end of the page, as it does for a browser: so the scan never looks twice at a byte.
"""

MAX_DEPTH: Final = 512
"""The depth to which Blink and WebKit build a document tree: no browser shows a page that is deeper."""
MAX_ATTRIBUTES: Final = 2048
"""Attributes of one tag: parsers compare each with all before it."""
MAX_DEPTH_TAGS: Final = 50_000_000
"""Depth times tags: nested lists are indented by their depth, so this bounds the text that comes out."""
SMALL_TAGS: Final = 4096
SMALL_CHARS: Final = 64 << 10
"""Pages with fewer tags and fewer characters than these cannot cost more than about a second: they are not scanned."""

_RAW: Final = re.compile(r"script|style|textarea|title|xmp|iframe|noembed|noframes", re.IGNORECASE)
# Elements that hold nothing, or that the next of their kind closes: a thousand open ones are no deeper than one.
_FLAT: Final = frozenset(
    re.findall(
        r"\w+",
        """area base br col embed hr img input link meta param source track wbr frame html head body a nobr form p li dt
        dd option optgroup colgroup tr td th tbody thead tfoot rb rt rp rtc""",
    )
)


def too_complex(html: str) -> tuple[float, str] | None:
    """Tell whether a page would take a parser time or memory far out of proportion to its length.

    Returns:
        (measure, what it is) of the first limit that the page exceeds, or None.
    """
    if len(html) < SMALL_CHARS and html.count("<") < SMALL_TAGS:
        return None
    depth, tags, attributes = nesting(html)
    if depth > MAX_DEPTH:
        return depth, f"elements nested {depth} deep, the limit is {MAX_DEPTH}"
    if attributes > MAX_ATTRIBUTES:
        return attributes, f"a tag of {attributes} attributes, the limit is {MAX_ATTRIBUTES}"
    if depth * tags > MAX_DEPTH_TAGS:
        return depth * tags, f"{tags} tags nested up to {depth} deep"
    return None


def nesting(html: str) -> tuple[int, int, int]:
    """Give an upper bound of how deep elements nest, the number of tags, and the most attributes of one tag.

    The bound counts, for each element name by itself, start tags without an end tag. Elements that close each other,
    such as ``p`` and ``li``, are left out: each nests at most once within one that is counted.
    """
    open_by_name: dict[str, int] = {}
    depth = deepest = tags = attributes = pos = 0
    while match := TAGS.search(html, pos):
        pos = match.end()
        if match[1] is None:
            continue
        tags += 1
        name = match[1].lower()
        if len(match[2]) > 2 * MAX_ATTRIBUTES:
            attributes = max(attributes, sum(1 for _ in ATTRIBUTES.finditer(match[2])))
        if name[0] == "/":
            if open_by_name.get(name[1:]):
                open_by_name[name[1:]] -= 1
                depth -= 1
        elif _RAW.fullmatch(name):
            end = re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE).search(html, pos)
            pos = end.start() if end else len(html)
            deepest = max(deepest, depth + 1)
        elif name not in _FLAT and not ("/" in match[3] and (open_by_name.get("svg") or open_by_name.get("math"))):
            open_by_name[name] = open_by_name.get(name, 0) + 1
            depth += 1
            deepest = max(deepest, depth)
    return deepest, tags, attributes
