"""What a page says of itself, and how much of a block stands there."""

from __future__ import annotations

import numpy as np
from resiliparse.parse.html import HTMLTree

from stages.html.blocks import Page
from stages.html.summary import shares, summaries_of

HTML = """<head><title>The old mill</title><meta name="description" content="Its wheel still turns in spring.">
<script type="application/ld+json">{"articleBody": "They built a wall around the garden."}</script></head>
<p>Its wheel still turns, they say.</p><p>They built a wall.</p><p>Nothing of this.</p><p>Two words</p>"""


def told(html: str) -> list[list[float]]:
    page = Page(str(HTMLTree.parse(html)))
    text = np.frombuffer(page.text, np.uint8)
    found = [shares(np.frombuffer(said, np.uint8), text, page.blocks) for said in summaries_of(page.source)]
    return [[round(float(value), 3) for value in one] for one in found]


def test_title_description_and_json() -> None:
    said, stored = summaries_of(str(HTMLTree.parse(HTML)).encode())
    assert b"The old mill" in said
    assert b"in spring" in said
    assert b"around the garden" in stored


def test_three_words_in_a_row_count() -> None:
    assert told(HTML) == [[0.5, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]


def test_a_page_that_says_nothing() -> None:
    assert summaries_of(b"<p>") == (b"", b"")
    assert told("<p>one two three four") == [[0.0], [0.0]]
