"""The main text of a page by fixed rules: resiliparse's, and what to take where they find too little."""

from __future__ import annotations

from typing import Final

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

ENOUGH_CHARS: Final = 1500
"""Main content of more characters is taken as it is."""
LEAST_PERCENT: Final = 5
"""Main content and comments are taken if they are at least so much of all text, else all of it."""


def extract_by_rules(html: str) -> str:
    """Return the text of a decoded page, without white space at its ends.

    Cheaper than the learnt blocks. It takes resiliparse's main content if there is enough of it; all text if even with
    readers' comments it is a sliver of that; else the longer of the two.

    Raises:
        resiliparse.parse.html.HTMLParserException: if the parser fails.
    """
    tree = HTMLTree.parse(html)
    main = _text(tree, comments=False)
    if len(main) > ENOUGH_CHARS:
        return main
    everything = _text(tree, main_content=False)
    commented = _text(tree, comments=True)
    if len(commented) * 100 < len(everything) * LEAST_PERCENT:
        return everything
    return max(main, commented, key=len)


def _text(tree: HTMLTree, *, main_content: bool = True, comments: bool = True) -> str:
    text: str = extract_plain_text(
        tree, main_content=main_content, comments=comments, alt_texts=False, preserve_formatting=True
    )
    return text.strip()
