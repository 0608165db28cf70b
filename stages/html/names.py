"""How each HTML element affects the depth of the tree: bits by name, from the HTML standard's rules (13.2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

# What an element is. On the stack, an element of SVG or MathML has FOREIGN and, of the bits of its name, only those
# that mark SVG and MathML.
VOID, FLAT, FORMATTING, NO_REOPEN, BARRIER, SPECIAL, RAW, CLOSES_P = (1 << bit for bit in range(8))
HEADING, BREAKOUT, P, LI, DD, BUTTON, OPTION, FORM, FONT, SVG, MATH = (1 << bit for bit in range(8, 19))
SVG_HTML, MATH_HTML, MATH_GLYPH, ANNOTATION, SCRIPT, ADDRESS_DIV, LIST, ANCHOR = (1 << bit for bit in range(19, 27))
FOREIGN, INTEGRATION, LISTED, OPTGROUP, BR, BLOCK, MARKER, CELL = (1 << bit for bit in range(27, 35))
CAPTION, TABLE, TEMPLATE, TABLE_PART, IMPLIED, RUBY, RUBY_PART, RUBY_BASE, SELECT, ROW, HR, ROOT = (
    1 << bit for bit in range(35, 47)
)

_NAMES: Final = {
    VOID: """area base basefont bgsound br col embed frame hr image img input keygen link meta param source track
        wbr""",
    # Elements of which a page has one, and parts of a table: they add no depth of their own that would matter.
    FLAT: "html head body frameset colgroup col tbody tfoot thead tr",
    FORMATTING | LISTED: "a b big code em font i nobr s small strike strong tt u",
    # Elements before which a parser does not reopen formatting elements.
    NO_REOPEN: """address article aside base basefont bgsound blockquote body caption center col colgroup dd
        details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head
        header hgroup hr html iframe li link listing main menu meta nav noembed noframes ol p param plaintext pre rb
        rp rt rtc script search section source style summary table tbody td template textarea tfoot th thead title tr
        track ul""",
    # Elements that stop the search for the element that an end tag closes (the standard's scope).
    BARRIER: "applet caption marquee object select table td template th",
    # Elements that formatting elements do not cross: neither reopened inside from outside, nor the reverse.
    MARKER: "applet caption marquee object td template th",
    # Elements that the end tag of an ordinary element does not close.
    SPECIAL: """address applet article aside blockquote button caption center dd details dir div dl dt fieldset
        figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup li listing main marquee menu nav noscript object
        ol p plaintext pre search section select summary table td template th ul""",
    # Elements whose end tag closes everything inside them, up to a barrier.
    BLOCK: """address applet article aside blockquote button center dd details dialog dir div dl dt fieldset
        figcaption figure footer header hgroup listing main marquee menu nav object ol pre search section select
        summary template ul""",
    # Elements whose content is text, even if it looks like tags.
    RAW: "iframe noembed noframes script style textarea title xmp",
    CLOSES_P: """address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption
        figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext pre search
        section summary ul xmp""",
    HEADING: "h1 h2 h3 h4 h5 h6",
    # Elements that cannot be inside SVG or MathML, and end it.
    BREAKOUT: """b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li
        listing menu meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var""",
    P: "p",
    LI: "li",
    DD: "dd dt",
    BUTTON: "button",
    OPTION: "option",
    OPTGROUP: "optgroup",
    FORM: "form",
    FONT: "font",
    SVG: "svg",
    MATH: "math",
    SVG_HTML: "foreignobject desc title",
    MATH_HTML: "mi mo mn ms mtext",
    MATH_GLYPH: "mglyph malignmark",
    ANNOTATION: "annotation-xml",
    SCRIPT: "script",
    ADDRESS_DIV: "address div p",
    LIST: "ol ul",
    ANCHOR: "a nobr",
    BR: "br",
    CELL: "td th",
    CAPTION: "caption",
    TABLE: "table",
    TEMPLATE: "template",
    TABLE_PART: "col colgroup tbody tfoot thead tr",
    # Elements whose end tag may be omitted.
    IMPLIED: "dd dt li optgroup option p rb rp rt rtc",
    RUBY: "ruby",
    RUBY_PART: "rb rp rt rtc",
    RUBY_BASE: "rtc",
    SELECT: "select",
    ROW: "tbody tfoot thead tr",
    HR: "hr",
    # Elements that keep what later tags of their name add.
    ROOT: "html body",
}

TABLE_SIZE: Final = 512


def _pack(name: str) -> tuple[int, int]:
    padded = name.encode().ljust(16, b"\0")
    return int.from_bytes(padded[:8], "big"), int.from_bytes(padded[8:], "big")


def _slot(low: int, high: int) -> int:
    mixed = (low * 0x9E3779B97F4A7C15 ^ high * 0xC2B2AE3D27D4EB4F) & (1 << 64) - 1
    return mixed >> 55


def table_of(named: Mapping[int, str]) -> npt.NDArray[np.int64]:
    """Return a hash table of tag names, int64 (low, high, bits) per row; open addressing, empty rows are zero.

    Args:
        named: names of at most 16 bytes, separated by white space, by the bits that they have. There is room for 512.
    """
    bits: dict[str, int] = {}
    for bit, names in named.items():
        for name in names.split():
            bits[name] = bits.get(name, 0) | bit
    table = np.zeros((TABLE_SIZE, 3), np.int64)
    for name, value in bits.items():
        low, high = _pack(name)
        slot = _slot(low, high)
        while table[slot, 0]:
            slot = (slot + 1) % TABLE_SIZE
        table[slot] = low, high, value
    return table


KNOWN: Final = table_of(_NAMES)
