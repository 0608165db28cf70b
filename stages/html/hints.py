"""Hints of what an element is for, in its class, id, role and the like: words found in one pass by an automaton.

Aho and Corasick (1975), Efficient string matching. Words are found inside others:
``navbar-left`` is navigation.
"""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from stages.html.lexer import lower
from stages.jit import subkernel

NAVIGATION, FOOTER, CONSENT, HEADER, ASIDE, RELATED, SHARE, COMMENT, PROMOTION, OVERLAY = (1 << b for b in range(10))
META, CARD, CONTENT, POST, FORM, HIDDEN, LEGAL, PRODUCT = (1 << b for b in range(10, 18))
HINTS: Final = 18
"""How many kinds of hint there are, one bit each."""
ONLY_SMALL: Final = (
    NAVIGATION | FOOTER | CONSENT | HEADER | ASIDE | RELATED | SHARE | PROMOTION | OVERLAY | HIDDEN | FORM
)
"""Hints that mean nothing on an element that holds most of the page's text."""

_WORDS: Final = {
    NAVIGATION: "nav menu breadcrumb pagination pager toolbar skiplink tabs topbar",
    FOOTER: "footer foot contentinfo bottombar colophon",
    CONSENT: "cookie consent gdpr onetrust ccpa",
    HEADER: "header masthead banner hero",
    ASIDE: "aside sidebar complementary widget rightcol leftcol rail",
    RELATED: "related recommend similar morefrom alsolike readnext upnext trending popular latest",
    SHARE: "share social follow addtoany sharedaddy facebook twitter",
    COMMENT: "comment disqus reply replies respond discussion",
    PROMOTION: "promo advert sponsor newsletter subscribe signup cta adsbygoogle adslot paywall",
    OVERLAY: "modal popup dialog overlay drawer offcanvas tooltip lightbox toast alert",
    META: "meta byline author date time tag category categories label caption credit info breadcrumb",
    CARD: "card teaser tile grid item listing carousel slider swiper gallery",
    CONTENT: "content article entry main story body text prose markdown richtext wysiwyg description",
    POST: "post message thread forum topic answer question",
    FORM: "form search login filter input button btn",
    HIDDEN: "hidden visuallyhidden sronly screenreader displaynone collapse",
    LEGAL: "copyright legal disclaimer terms privacy",
    PRODUCT: "product price cart shop review rating spec feature",
}
LETTERS: Final = 26


def _automaton(words: Mapping[int, str]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
    """Return (the next state by state and letter, the bits of the words that end in a state)."""
    following: list[dict[int, int]] = [{}]
    found = [0]
    for bit, line in words.items():
        for word in line.split():
            state = 0
            for letter in (ord(char) - ord("a") for char in word):
                if letter not in following[state]:
                    following[state][letter] = len(following)
                    following.append({})
                    found.append(0)
                state = following[state][letter]
            found[state] |= bit
    table = np.zeros((len(following), LETTERS), np.int16)
    waiting, failed = [0], [0] * len(following)
    for state in waiting:
        for letter in range(LETTERS):
            fallback = table[failed[state], letter] if state else 0
            reached = following[state].get(letter)
            table[state, letter] = fallback if reached is None else reached
            if reached is not None:
                failed[reached] = int(fallback)
                found[reached] |= found[failed[reached]]
                waiting.append(reached)
    return table, np.array(found, np.int64)


STATES, FOUND = _automaton(_WORDS)
"""The automaton: int16 of shape (states, 26), and the hints that each state has found, int64 of shape (states,)."""


@subkernel
def hints_of(page, start, end, states, found):
    """Return the hints in the bytes ``start`` to ``end`` of a page; hyphens and underscores in words are left out."""
    state = 0
    hints = np.int64(0)
    for i in range(start, end):
        byte = lower(page[i])
        if 0x61 <= byte <= 0x7A:
            state = states[state, byte - 0x61]
            hints |= found[state]
        elif byte != 0x2D and byte != 0x5F:
            state = 0
    return hints
