"""What an element means for text: bits by name. Names that are not here are inline."""

from __future__ import annotations

from typing import Final

from stages.html.names import table_of

BLOCK, VOID, RAW_TEXT, SKIPPED, LINK, BREAK, PREFORMATTED, CODE, LIST, ORDERED = (1 << bit for bit in range(10))
ITEM, TABLE, ROW, CELL, HEADING, PARAGRAPH, QUOTE, TERM, CAPTION, NAV = (1 << bit for bit in range(10, 20))
FOOTER, HEADER, ASIDE, FORM, BUTTON, ARTICLE, MAIN, SECTION, DETAILS, ADDRESS = (1 << bit for bit in range(20, 30))
LEVELS: Final = 30
"""The first of six bits, one for each level of heading."""
H1, H2, H3, H4, H5, H6 = (1 << bit for bit in range(LEVELS, LEVELS + 6))
BODY, NOSCRIPT = 1 << 36, 1 << 37

_NAMES: Final = {
    BLOCK: """address article aside blockquote body button caption center dd details dialog dir div dl dt fieldset
        figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main menu nav
        noscript ol optgroup option p pre search section summary table tbody td tfoot th thead tr ul""",
    VOID: """area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr""",
    # Written without escapes when a tree is written as HTML.
    RAW_TEXT: "iframe noembed noframes plaintext script style xmp",
    # Not shown as text, or not the page's own. The reading aids of ruby repeat what they stand beside.
    SKIPPED: """annotation annotation-xml audio canvas datalist embed head iframe meter noembed noframes object
        progress rp rt rtc script select style svg template textarea title video""",
    LINK: "a",
    BREAK: "br",
    PREFORMATTED: "listing pre",
    CODE: "code kbd samp tt",
    LIST: "dir menu ol ul",
    ORDERED: "ol",
    ITEM: "li",
    TABLE: "table",
    ROW: "tr",
    CELL: "td th",
    HEADING: "h1 h2 h3 h4 h5 h6",
    H1: "h1",
    H2: "h2",
    H3: "h3",
    H4: "h4",
    H5: "h5",
    H6: "h6",
    PARAGRAPH: "p",
    QUOTE: "blockquote",
    TERM: "dd dt",
    CAPTION: "caption figcaption legend",
    NAV: "nav",
    FOOTER: "footer",
    HEADER: "header",
    ASIDE: "aside",
    FORM: "fieldset form",
    BUTTON: "button option summary",
    ARTICLE: "article",
    MAIN: "main",
    SECTION: "section",
    DETAILS: "details dialog",
    ADDRESS: "address",
    BODY: "body",
    # Forums serve their posts in it to readers without scripts, crawlers among them.
    NOSCRIPT: "noscript",
}

MEANINGS: Final = table_of(_NAMES)
"""A hash table of the names, as ``names.table_of`` makes it."""
