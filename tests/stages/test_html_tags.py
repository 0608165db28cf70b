"""The tag scan bounds what a parser will do, and is itself linear."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from stages.html_tags import MAX_DEPTH, SMALL_CHARS, most_attributes, nesting, too_complex

PIECES = [
    "<div>",
    "</div>",
    "<span a='>'>",
    "</span>",
    "<b>",
    "</b>",
    "<!-- </div> -->",
    "<script>'</div>'</script>",
    "x",
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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_the_tree_is_never_much_deeper_than_the_scan_says(pieces: list[str]) -> None:
    for html in ("".join(pieces), "".join(pieces) * 20):
        assert tree_depth(html) <= 3 * nesting(html)[0] + 6


@pytest.mark.parametrize(
    ("html", "depth"),
    [
        ("<p>a" * 50, 0),
        ("<ul><li>a</ul>" * 50, 1),
        ("<ul><li>" * 50, 50),
        ("<svg>" + "<path d='M0'/>" * 50 + "</svg>", 1),
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
    ],
)
def test_depth(html: str, depth: int) -> None:
    assert nesting(html)[0] == depth


def test_attributes_are_counted_as_a_parser_sees_them() -> None:
    assert most_attributes("<p " + " ".join(f"a{i}='>'" for i in range(2_000)) + ">") == 2_000
    assert most_attributes("<script " + "a b " * 2_000 + "></script>") == 4_000
    assert most_attributes("<p title='" + "a b " * 2_000 + "'>") == 1
    assert most_attributes("<script>'<p " + "a b " * 2_000 + ">'</SCRIPT><p a>") == 0


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
    start = time.process_time()
    too_complex(piece * (1_000_000 // len(piece)))
    too_complex("<a" + piece[-1] * 1_000_000)
    too_complex(("<a" + piece[-1] * 10_000) * 100)
    # Quadratic behaviour would take minutes; linear takes about 0.1 s.
    assert time.process_time() - start < 5


def test_end_tags_without_effect_do_not_make_it_search_without_end() -> None:
    start = time.process_time()
    assert too_complex("<i><table>" + "<span>" * 500 + "</i>" * 1_000_000) is not None
    assert too_complex("<b>" * 400 + "<div>" * 100 + "</b>" * 1_000_000) is not None
    assert time.process_time() - start < 10
