"""The blocks of a page: every character that is shown, once and in order, whatever its script and its nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from stages.html.blocks import (
    CHARS,
    CODE_BEGINS,
    CODE_ENDS,
    ELEMENT,
    END,
    FIRST,
    FROM,
    HINTS,
    LAST,
    LINK_BEGINS,
    LINK_ENDS,
    LINKED,
    MARKS,
    MASS,
    PARENT,
    PATH,
    POSITION,
    START,
    TO,
    WHAT,
    WORDS,
    Page,
)
from stages.html.hints import HIDDEN, NAVIGATION


def page(html: str) -> Page:
    return Page(str(HTMLTree.parse(html)))


def texts(html: str) -> list[str]:
    found = page(html)
    return [found.text[block[START] : block[END]].decode() for block in found.blocks]


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<p>The <i>x</i> value", ["The x value"]),
        ("<p>漢<b>字</b>です", ["漢字です"]),
        ("<p><span>東</span>京", ["東京"]),
        ("<p>他<a href='/a'>在</a>这里", ["他在这里"]),
        ("<p><b>책</b>을 읽다", ["책을 읽다"]),
        ("<p>Он <b>и</b> она", ["Он и она"]),
        ("<p>Il va <b>à</b> Paris", ["Il va à Paris"]),
        ("<p>هو <b>و</b> هي", ["هو و هي"]),
        ("<p><b>ก</b>ิน<i>ข</i>้าว", ["กินข้าว"]),
        ("<p><ruby>東京<rp>(</rp><rt>とうきょう</rt><rp>)</rp></ruby>へ<ruby>行<rt>い</rt></ruby>く", ["東京へ行く"]),
        ("<table><tr><td>一<td>2<td>x</table>", ["一", "2", "x"]),
        ("<ul><li>水<li>3<li>é</ul>", ["水", "3", "é"]),
        ("<p>川の\n  ほとり\nin Kyoto\nへ", ["川のほとり in Kyoto へ"]),
        ("<p>句読点。\n改行", ["句読点。改行"]),
        ("<p>책을\n읽다", ["책을 읽다"]),
    ],
)
def test_no_character_of_any_script_is_lost_or_split(html: str, wanted: list[str]) -> None:
    assert texts(html) == wanted


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<p>a &amp; b &lt; c&nbsp;d &gt; &quot;e&quot;", ['a & b < c d > "e"']),
        ("<p>a  \n b<b> c </b> d", ["a b c d"]),
        ("<p>one<br>two<br><br>three", ["one\ntwo", "three"]),
        ("<pre>\n  a\n\n\tb &lt; c\n</pre>", ["  a\n\n\tb < c"]),
        ("a<script>'<p>b'</script>c<style>d</style>e<!-- f -->g", ["aceg"]),
        ("<script>'</b></p>'</script><p>a<textarea>b</textarea>c", ["ac"]),
        ("<svg><title>a</title><script>b</script></svg><p>c", ["c"]),
        ("<template><p>a</p></template><noscript><p>b</p></noscript>c", ["b", "c"]),
        ("<p>a<plaintext><b>c", ["a"]),
        ("a<p>b<div>c</div>d", ["a", "b", "c", "d"]),
        ('<p title="a>b">c', ["c"]),
        ("", []),
        ("<p> \n </p><br><br>", []),
    ],
)
def test_what_is_text_and_where_blocks_end(html: str, wanted: list[str]) -> None:
    assert texts(html) == wanted


def test_what_is_counted_of_a_block() -> None:
    found = page("<p>One, <a href=x>two</a> three.</p><p>漢字です。</p><p>กินข้าว</p>")
    assert found.blocks[:, CHARS].tolist() == [13, 13, 21]
    assert found.blocks[:, LINKED].tolist() == [3, 0, 0]
    assert found.blocks[:, WORDS].tolist() == [3, 1, 1]
    assert found.blocks[:, MARKS].tolist() == [2, 1, 1]
    assert found.blocks[:, MASS].tolist() == [0, 0, 0]
    assert page("<p>" + "a b, " * 30).blocks[0, MASS] == 90


def test_elements_their_ranges_and_hints() -> None:
    found = page("<body><div class='main-nav'><p>a<p>b</div><div style='color:red; display: none'>c</div>d")
    kinds = found.elements[:, HINTS]
    navigation = np.flatnonzero(kinds & NAVIGATION)[0]
    assert found.elements[navigation, [FIRST, LAST]].tolist() == [0, 2]
    hidden = np.flatnonzero(kinds & HIDDEN)[0]
    assert found.elements[hidden, [FIRST, LAST]].tolist() == [2, 3]
    assert found.blocks[3, ELEMENT] == found.elements[navigation, PARENT]


def test_elements_of_one_class_but_for_numbers_have_one_path() -> None:
    found = page("<div class='post-1'>a</div><div class='post-22'>b</div><div class=card>c</div>")
    first, second, third = found.elements[found.blocks[:, ELEMENT], PATH]
    assert first == second != third


def test_spans_are_links_and_code() -> None:
    found = page("<p>a <a href='/x?a=1&b=2'>b</a> <code>c</code>")
    spans = found.spans
    assert spans[:, WHAT].tolist() == [LINK_BEGINS, LINK_ENDS, CODE_BEGINS, CODE_ENDS]
    assert found.source[spans[0, FROM] : spans[0, TO]] == b"/x?a=1&amp;b=2"
    assert found.text[spans[0, POSITION] : spans[1, POSITION]] == b"b"
    assert found.text[spans[2, POSITION] : spans[3, POSITION]] == b"c"


TAGS = """<p> </p> <div> </div> <b> </b> <pre> </pre> <br> <table> <td> <tr> <ul> <li> </ul> <a> </a> <ruby> <rt> <svg>
    </svg> <select> <script> </script> <!-- --> &amp; &nbsp; &#0; < > " 漢 ก 책 é a. \ufffd"""
PIECES = st.sampled_from([*TAGS.split(), " ", "\n", "<div class='a b'>", "<a href=x>"])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=60))
def test_any_page_gives_ranges_that_fit_and_text_that_is_shown(pieces: list[str]) -> None:
    found = page("".join(pieces))
    blocks, elements = found.blocks, found.elements
    bounds = blocks[:, [START, END]].ravel()
    assert (np.diff(bounds) >= 0).all()
    assert (blocks[:, START] < blocks[:, END]).all()
    assert (elements[1:, PARENT] < np.arange(1, len(elements))).all()
    assert (elements[:, FIRST] <= elements[:, LAST]).all()
    for block, row in enumerate(blocks):
        text = found.text[row[START] : row[END]].decode()
        assert text.strip()
        assert elements[row[ELEMENT], FIRST] <= block < elements[row[ELEMENT], LAST]
    shown = set("漢ก책éa")
    whole = str(HTMLTree.parse("".join(pieces)))
    assert shown.intersection(found.text.decode()) <= shown.intersection(whole)
