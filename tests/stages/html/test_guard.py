"""The tag scan bounds what a parser will do, and is itself linear."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from stages.html.guard import MAX_DEPTH, SMALL_CHARS, most_attributes, nesting, too_complex

NAMES = re.findall(
    r"\S+",
    """div span b i a p li ul dd dt dl h1 h2 form button select option optgroup table tr td th caption tbody colgroup
    object applet template svg math mi desc foreignObject title style script textarea xmp iframe noscript nobr font
    ruby rt rp rb rtc x-y br img input hr pre ol em annotation-xml mglyph g image section details dialog body html
    head frameset noframes marquee summary keygen bgsound basefont label""",
)
PIECES = [
    *(f"<{name}>" for name in NAMES),
    *(f"</{name}>" for name in NAMES),
    *["<div>", "</div>", "<span>", "</span>", "<b>", "</b>", "<svg>", "</svg>", "<table>", "</table>"],
    *["x", " ", ">", "<!--", "-->", "<!-- x -->", "<![CDATA[", "]]>", "<script><!--<script>", "<a href='>", "'>"],
    *["<div/>", "<g/>", "<x/>", "<p/>", "<title/>", "<b a=1>", "<i a=2>", "<font color=a>"],
    "<annotation-xml encoding=text/html>",
]


def tree_depth(html: str) -> int:
    depth, deepest, node = 0, 0, HTMLTree.parse(html).body
    while node is not None:
        if node.first_child is not None:
            depth, node = depth + 1, node.first_child
            deepest = max(deepest, depth - (node.tag == "#text" or node.tag == "#comment"))
            continue
        while node is not None and node.next is None:
            depth, node = depth - 1, node.parent
        node = node.next if node is not None else None
    return deepest


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=2), st.lists(st.sampled_from(PIECES), min_size=1, max_size=9))
def test_the_tree_is_never_much_deeper_than_the_scan_says(before: list[str], pieces: list[str]) -> None:
    for html in ("".join(before + pieces), "".join(before) + "".join(pieces) * 60):
        assert tree_depth(html) <= 4 * nesting(html)[0] + 10


@pytest.mark.parametrize(
    "piece",
    [
        "<svg><style><div></style></svg>",
        "<div><svg><style><!--</style></div>-->",
        "<div><svg><![CDATA[></div>]]></svg>",
        "<div><svg><foreignObject></div>",
        "<div><math><mi></div>",
        "<math><mi><mglyph><style><div></style></math>",
        "<svg><input>",
        "<svg><p><x/>",
        "<svg><font color><x/>",
        "<div><select></div></select>",
        "<div><script><!--<script></script></div></script>",
        "<h1><div><h2></h1>",
        "<span><li></span></li>",
        "<span><p></span></p>",
        "<span><form></span></form>",
        "<option><rt>",
        "<ruby><p><rp>",
        "<select><option><i><p>",
        "<b><b><b><b><div></b></b></b></b></div>",
        "<template><b></template><g>",
        "<table><td><b></table><g></b>",
        "<noscript><pre></noscript>",
        "<annotation-xml></image><image>",
    ],
)
def test_markup_that_a_simpler_scan_takes_for_shallow(piece: str) -> None:
    assert tree_depth(piece * 200) <= 4 * nesting(piece * 200)[0] + 10
    if tree_depth(piece * 200) > 150:
        assert too_complex(piece * 30_000) is not None


@pytest.mark.parametrize(
    ("html", "depth"),
    [
        ("<p>a" * 50, 1),
        ("<ul><li>a</ul>" * 50, 2),
        ("<ul><li>" * 50, 100),
        ("<svg>" + "<path d='M0'/>" * 50 + "</svg>", 2),
        ("<div/>" * 5, 5),
        ("<DIV></dIv>" * 5, 1),
        ("</div>" * 50 + "<div>" * 3, 3),
        ("<div></span>" * 9, 9),
        ("<b><i></b></i>" * 50, 2),
        ("<font><div></font></div>" * 50, 2),
        ("<div><b>x</div>" * 50, 5),
        ("<div><b>x</div>y" * 50, 51),
        ("<span><span><div></span></span></div>" * 9, 19),
        ("<div title='</div>'>" * 9, 9),
        ("<b><span></b>" * 50, 2),
        ("<table><tr><td><span></table>" * 50, 3),
        ("<table><tr><td>a<td>b</table>" * 50, 2),
        ("<select><option>a<option>b</select>" * 50, 2),
        ("<svg><title>a</title><g><path/></g></svg>" * 50, 3),
        ("<math><mi>x</mi><mo>=</mo></math>" * 50, 2),
        ("<custom-element-name></CUSTOM-element-name>" * 50, 1),
        ("<custom-element-name></custom-element-nam>" * 9, 9),
        ("<!-- <div> --!><div><!-->" * 9, 9),
        ("<style><div></styles></style>" * 9, 1),
    ],
)
def test_depth(html: str, depth: int) -> None:
    assert nesting(html)[0] == depth


def test_attributes_are_counted_as_a_parser_sees_them() -> None:
    assert most_attributes("<p " + " ".join(f"a{i}='>'" for i in range(2_000)) + ">") == 2_000
    assert most_attributes("<script " + "a b " * 2_000 + "></script>") == 4_000
    assert most_attributes("<p title='" + "a b " * 2_000 + "'>") == 1
    assert most_attributes("<script>'<p " + "a b " * 2_000 + ">'</SCRIPT><p a>") == 1


def test_only_pages_out_of_proportion_are_too_complex() -> None:
    assert too_complex("<div>" * (MAX_DEPTH + 1)) is None
    deep = too_complex("<div>" * 20_000)
    assert deep is not None
    assert deep[0] == MAX_DEPTH + 1
    assert too_complex("<p>" * SMALL_CHARS) is None
    assert too_complex("<p " + "a " * SMALL_CHARS + ">") is not None
    assert too_complex("<ul>" * 500 + "<li>" * 200_000) is not None


@pytest.mark.parametrize(
    "piece",
    ['<p "', "<a b='<a b=\"", "<!--", "<!", "<a ", "<script>", "<script></scriptx", "<", "<a/", "<a=", "<a '>", "</"],
)
def test_the_scan_is_linear_in_hostile_pages(piece: str) -> None:
    too_complex("<p>Compiles the kernel.")
    start = time.process_time()
    too_complex(piece * (1_000_000 // len(piece)))
    too_complex("<a" + piece[-1] * 1_000_000)
    too_complex(("<a" + piece[-1] * 10_000) * 100)
    # Quadratic behaviour would take minutes; linear takes about 0.1 s.
    assert time.process_time() - start < 5


def test_end_tags_without_effect_do_not_make_it_search_without_end() -> None:
    too_complex("<p>Compiles the kernel.")
    start = time.process_time()
    assert too_complex("<i><table>" + "<span>" * 500 + "</i>" * 1_000_000) is not None
    assert too_complex("<b>" * 400 + "<div>" * 100 + "</b>" * 1_000_000) is not None
    assert time.process_time() - start < 10
