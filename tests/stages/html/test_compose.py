"""Text out of blocks: lists, tables, code, headings, quotes and links, plain and as Markdown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from stages.html.blocks import Page
from stages.html.compose import Form, composed
from tests.stages.html.test_blocks import PIECES


def written(html: str, form: Form = "markdown", kept: list[bool] | None = None) -> str:
    page = Page(str(HTMLTree.parse(html)))
    return composed(page, np.ones(len(page.blocks), np.bool_) if kept is None else np.array(kept), form)


@pytest.mark.parametrize(
    ("html", "plain", "markdown"),
    [
        ("<h2>A<br>b</h2><p>c", "A b\n\nc", "## A b\n\nc"),
        ("<ul><li>a<li>b<ul><li>c<p>d</ul></ul>e",) + ("- a\n- b\n    - c\n\n      d\n\ne",) * 2,
        ("<ol><li>a<li><li>b<br>c</ol>",) + ("1. a\n2. b\n   c",) * 2,
        ("<li>alone",) + ("alone",) * 2,
        ("<ul><li><h3>a</h3>b</ul>", "a\n\nb", "### a\n\nb"),
        ("<pre>a\n\n  b`</pre>", "a\n\n  b`", "```\na\n\n  b`\n```"),
        ("<pre>```</pre>", "```", "````\n```\n````"),
        ("<blockquote><p>a<p>b<br>c</blockquote>d", "a\n\nb\nc\n\nd", "> a\n>\n> b\n> c\n\nd"),
        ("<p>a <code>b</code> <tt>c`d</tt> <code></code>e", "a b c`d e", "a `b` `` c`d `` e"),
        (
            "<table><tr><th>a<th>b|c<tr><td><td>d<br>e<tr><td>f<td><p>g<p>h</table>i",
            "a | b|c\n | d e\nf | g h\n\ni",
            "| a | b\\|c |\n| --- | --- |\n|  | d e |\n| f | g h |\n\ni",
        ),
        ("<table><tr><td>menu<td><h1>t</h1><tr><td>a<td>b</table>", "menu\n\nt\n\na\n\nb", "menu\n\n# t\n\na\n\nb"),
        ("<table><tr><td>a<tr><td>b</table>",) + ("a\n\nb",) * 2,
    ],
)
def test_structure(html: str, plain: str, markdown: str) -> None:
    assert written(html, "plain") == plain
    assert written(html) == markdown


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<p>a <a href='/x?a=1&b=2'>b c</a>d", "a [b c](/x?a=1&b=2)d"),
        ("<p><a href='/(x) y'><code>b</code></a>", "[`b`](/%28x%29%20y)"),
        ("<a href=x><p>a</p><p>b</p></a>", "a\n\nb"),
        ("<p><a href=x></a>a <a>b</a>", "a [b]()"),
    ],
)
def test_links_by_choice(html: str, wanted: str) -> None:
    assert written(html, "markdown_links") == wanted
    assert "](" not in written(html)


def test_only_what_is_kept_and_an_item_has_its_mark_wherever_it_begins() -> None:
    html = "<ul><li>a<p>b<li>c</ul><p>d"
    assert written(html, "plain", [False, True, True, False]) == "- b\n- c"
    assert written(html, "plain", [False] * 4) == ""


def test_a_far_cell_does_not_blow_up_the_text() -> None:
    row = "<tr>" + "<td>" * 3_000 + "x"
    assert len(written(f"<table>{row * 20}</table>", "plain")) < 20 * 3_000


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=60))
def test_every_form_has_the_characters_of_the_page_once(pieces: list[str]) -> None:
    html = "".join(pieces)
    page = Page(str(HTMLTree.parse(html)))
    wanted = sorted(char for char in page.text.decode() if char in "漢ก책é\ufffd")
    for form in ("plain", "markdown", "markdown_links"):
        assert sorted(char for char in written(html, form) if char in "漢ก책é\ufffd") == wanted
