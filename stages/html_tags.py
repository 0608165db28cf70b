"""A scan of HTML tags that is linear in the page, for questions that must be answered before the page is parsed."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

_NAME: Final = r"[\s/]*+{0}[^\s/>][^\s/>=]*+)"
_VALUE: Final = r"(?:\s*+=\s*+(?:\"{0}[^\"]*+)\"|'{0}[^']*+)'|{0}[^\s>\"'][^\s>]*+)|(?=>)))?+"
_REST: Final = r"((?:" + (_NAME + _VALUE).format("(?:") + r")*+)([\s/]*+)(?:>|\Z)"
_OTHER: Final = r"<!--(?:-?>|.*?--!?>|.*)|<(/?[a-z][^\s/>]*+)" + _REST + r"|<[!/?][^>]*+(?:>|\Z)"
_RAW: Final = r"<(script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>])"
_FLAGS: Final = re.IGNORECASE | re.DOTALL | re.ASCII

ATTRIBUTES: Final = re.compile((_NAME + _VALUE).format("("), re.ASCII)
"""One attribute: name, then its value in double, in single, or in no quotes."""
TAGS: Final = re.compile(_OTHER, _FLAGS)
"""A comment, or a tag: its name with the slash of an end tag, its attributes, and what stands before its end.

A tag without an end reaches to the end of the page, as it does for a browser: so the scan never looks twice at a byte.
"""
_TAGS_AND_RAW: Final = re.compile(_RAW + _REST + r"(?:[^<]++|<(?!/\1[\s/>]))*+|" + _OTHER, _FLAGS)
"""The same, where an element of raw text (group 1) comes with its text, in which tags are none."""

MAX_DEPTH: Final = 512
"""The depth to which Blink and WebKit build a document tree: no browser shows a page that is deeper."""
MAX_ATTRIBUTES: Final = 2048
"""Attributes of one tag: parsers compare each with all before it."""
MAX_DEPTH_TAGS: Final = 10_000_000
"""Depth times tags: nested lists are indented by their depth, so this bounds the text that comes out."""
SMALL_TAGS: Final = 4096
SMALL_CHARS: Final = 64 << 10
"""Fewer tags, or attributes in fewer characters, cannot cost more than about a second: such pages are not scanned."""

_FORMATTING: Final = frozenset(["b", "big", "code", "em", "font", "i", "s", "small", "strike", "strong", "tt", "u"])
_REOPENING: Final = frozenset(["a", "br", "button", "embed", "img", "input", "nobr", "option", "wbr"])
"""Elements that are left out of the depth, but before which a parser opens cut off formatting elements again."""
_BARRIER: Final = frozenset(["applet", "caption", "marquee", "object", "table", "template"])
"""Elements that an end tag does not reach across."""
_SPECIAL: Final = _BARRIER | frozenset(
    re.findall(
        r"\w+",
        """address article aside blockquote button center details dialog dir div dl fieldset figcaption figure footer
        frameset h1 h2 h3 h4 h5 h6 header hgroup listing main menu nav noscript ol plaintext pre search section select
        summary ul""",
    )
)
"""Elements that the end tag of another, ordinary one does not close."""
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
    if len(html) >= SMALL_CHARS and (attributes := most_attributes(html)) > MAX_ATTRIBUTES:
        return attributes, f"a tag of {attributes} attributes, the limit is {MAX_ATTRIBUTES}"
    if html.count("<") < SMALL_TAGS:
        return None
    depth, tags = nesting(html)
    if depth > MAX_DEPTH:
        return depth, f"elements nested deeper than {MAX_DEPTH}"
    if depth * tags > MAX_DEPTH_TAGS:
        return depth * tags, f"{tags} tags nested up to {depth} deep"
    return None


def most_attributes(html: str) -> int:
    """Give the most attributes of one tag, or 0 where no tag has the characters that ``MAX_ATTRIBUTES`` would take."""
    most = 0
    for tag in _TAGS_AND_RAW.finditer(html):
        if tag.end() - tag.start() > 2 * MAX_ATTRIBUTES:
            attributes = tag[5] or tag[2] or ""
            if len(attributes) > 2 * MAX_ATTRIBUTES:
                most = max(most, sum(1 for _ in ATTRIBUTES.finditer(attributes)))
    return most


def nesting(html: str) -> tuple[int, int]:
    """Give how deep elements nest, and the number of tags.

    Follows the stack of open elements as a parser does, as far as depth depends on it: end tags that a parser ignores
    close nothing here either. Elements that close each other, such as ``p`` and ``li``, are left out, so the depth of
    the tree may be a small multiple. Stops where a limit is exceeded, so that end tags without effect cannot make it
    search a deep stack without end.
    """
    elements = _OpenElements()
    tags = end = 0
    for tag in _TAGS_AND_RAW.finditer(html):
        if elements.cut and html[end : tag.start()].strip():
            elements.reopen()
        end = tag.end()
        if tag[1]:
            elements.deepest = max(elements.deepest, len(elements.stack) + 1)
        elif tag[4] is None:
            continue
        elif tag[4][0] == "/":
            elements.end(tag[4][1:].lower())
        else:
            elements.start(tag[4].lower(), tag[5], closed="/" in tag[6])
        tags += 1
        if elements.deepest > MAX_DEPTH or elements.deepest * tags > MAX_DEPTH_TAGS:
            break
    elements.reopen()
    return elements.deepest, tags


class _OpenElements:
    """The open elements, as (name, tag), and the formatting ones that ``cut`` off end tags of others closed."""

    def __init__(self) -> None:
        self.stack: list[tuple[str, str]] = []
        self.cut: list[tuple[str, str]] = []
        self.deepest = 0
        self._open: Counter[str] = Counter()

    def start(self, name: str, attributes: str, *, closed: bool) -> None:
        if self.cut and name not in _SPECIAL and (name not in _FLAT or name in _REOPENING):
            self.reopen()
        if name in _FLAT or (closed and (self._open["svg"] or self._open["math"])):
            return
        self._push(name, name + attributes)

    def reopen(self) -> None:
        """Open cut off formatting elements again, as a parser does before text and elements in a line."""
        for name, tag in self.cut:
            self._push(name, tag)
        self.cut.clear()

    def end(self, name: str) -> None:
        if not self._open[name]:
            self.cut = [entry for entry in self.cut if entry[0] != name]
            return
        for at in range(len(self.stack) - 1, -1, -1):
            found = self.stack[at][0]
            if found == name:
                self._close(at)
                return
            if found in _BARRIER or (found in _SPECIAL and name not in _SPECIAL and name not in _FORMATTING):
                return

    def _push(self, name: str, tag: str) -> None:
        self.stack.append((name, tag))
        self._open[name] += 1
        self.deepest = max(self.deepest, len(self.stack))

    def _close(self, at: int) -> None:
        if self.stack[at][0] in _FORMATTING:
            # Blocks inside move out of a formatting element that ends before them, and go on.
            self._open[self.stack[at][0]] -= 1
            del self.stack[at]
            return
        for entry in self.stack[at:]:
            self._open[entry[0]] -= 1
            # A parser opens no more than three alike.
            if entry[0] in _FORMATTING and self.cut.count(entry) < 3:
                self.cut.append(entry)
        del self.stack[at:]
