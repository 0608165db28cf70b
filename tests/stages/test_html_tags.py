"""The tag scan bounds what a parser will do, and is itself linear."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from stages.html_tags import MAX_DEPTH, SMALL_CHARS, nesting, too_complex

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
def test_the_bound_is_never_below_the_depth_of_the_tree(pieces: list[str]) -> None:
    html = "".join(pieces)
    assert nesting(html)[0] >= tree_depth(html)


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
        ("<div title='</div>'>" * 9, 9),
    ],
)
def test_depth(html: str, depth: int) -> None:
    assert nesting(html)[0] == depth


def test_attributes_are_counted_as_a_parser_sees_them() -> None:
    assert nesting("<p " + " ".join(f"a{i}='>'" for i in range(2_000)) + ">")[2] == 2_000
    assert nesting("<p title='" + "a b " * 2_000 + "'>")[2] == 1


def test_only_pages_out_of_proportion_are_too_complex() -> None:
    assert too_complex("<div>" * (MAX_DEPTH + 1)) is None
    deep = too_complex("<div>" * 20_000)
    assert deep is not None
    assert deep[0] == 20_000
    assert too_complex("<p>" * SMALL_CHARS) is None
    assert too_complex("<p " + "a " * SMALL_CHARS + ">") is not None
    assert too_complex("<ul>" * 500 + "<li>" * 200_000) is not None


@pytest.mark.parametrize(
    "piece", ['<p "', "<a b='<a b=\"", "<!--", "<!", "<a ", "<script>", "<", "<a/", "=", "<a '>", "</"]
)
def test_the_scan_is_linear_in_hostile_pages(piece: str) -> None:
    start = time.process_time()
    nesting(piece * (1_000_000 // len(piece)))
    # Quadratic behaviour would take minutes; linear takes about 0.1 s.
    assert time.process_time() - start < 5
