"""The followed stack of open elements is never much shallower than the tree that a parser builds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.html.guard import too_complex
from stages.html.tree import MAX_ADOPTIONS, MAX_ALIKE
from tests.stages.html.pages import PIECES, depth_of, tree_depth, walk


def is_deep_enough(html: str) -> bool:
    return tree_depth(html) <= 4 * depth_of(html) + 10


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=2), st.lists(st.sampled_from(PIECES), min_size=1, max_size=9))
def test_the_tree_is_never_much_deeper_than_the_scan_says(before: list[str], pieces: list[str]) -> None:
    assert is_deep_enough("".join(before + pieces))
    assert is_deep_enough("".join(before) + "".join(pieces) * 60)


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
    assert is_deep_enough(piece * 200)
    if tree_depth(piece * 200) > 150:
        assert too_complex(piece * 30_000) is not None


def left_open(html: str) -> int:
    """Return how many elements the scan takes to be open at the end of a page, reopened ones included."""
    return depth_of(html + "<g>" * 30) - 30


@pytest.mark.parametrize(
    ("html", "elements"),
    [
        # What a start tag closes.
        ("<p><div>", 1),
        ("<p><span><div>", 1),
        ("<p><button><div>", 3),
        ("<li><li>", 1),
        ("<li><div><li>", 1),
        ("<li><ul><li>", 3),
        ("<li><section><li>", 3),
        ("<dt><dd><dt>", 1),
        ("<h1><h2>", 1),
        ("<h1><span><h2>", 3),
        ("<button><span><button>", 1),
        ("<nobr><nobr>", 1),
        ("<a><div><a>", 2),
        ("<option><optgroup>", 1),
        ("<ruby><rb><rt>", 2),
        ("<rb><rt>", 2),
        ("<br><img><input>", 0),
        ("<html><head><body>", 0),
        # What an end tag closes.
        ("<div><span></div>", 0),
        ("<span><div></span>", 2),
        ("<h1></h2>", 0),
        ("<object><div></object>", 0),
        ("<div><object></div>", 2),
        ("<p></p></p></p>", 0),
        ("<ul><li></ul></li>", 0),
        ("<li><ul></li>", 2),
        ("<dialog><span></dialog>", 0),
        ("<form><div></form>", 1),
        ("<b><p></b>", 1),
        ("<b><i></b>", 1),
        ("<p><b></p>", 1),
        ("<object><b></object>", 0),
        ("</div></b></p>", 0),
        # Tables: parts other than cells are not counted.
        ("<table><tr><td>", 2),
        ("<table><td><table>", 3),
        ("<table><table>", 1),
        ("<table><td><span></td>", 1),
        ("<table><td><span><tr>", 1),
        ("<table><td><b></table>", 0),
        ("<table><caption><b></table>", 0),
        ("<td><td>", 0),
        # SVG and MathML.
        ("<svg/>", 0),
        ("<svg><g/><g/>", 1),
        ("<svg><foreignObject><g/>", 3),
        ("<svg><g><p>", 1),
        ("<svg><g></p>", 0),
        ("<svg><g></SVG>", 0),
        ("<math><mi><b></math>", 3),
        # Raw text.
        ("<script><div></script>", 0),
        ("<title><div></title>", 0),
        ("<noscript><div></noscript>", 2),
    ],
)
def test_what_each_rule_leaves_open(html: str, elements: int) -> None:
    assert left_open(html) == elements
    assert tree_depth(html + "<g>" * 30) - 30 <= 2 * elements + 2


def test_of_formatting_elements_alike_three_are_reopened() -> None:
    assert MAX_ALIKE == 3
    assert left_open("<b>" * 9) == 9
    assert left_open("<p>" + "<b>" * 9 + "</p>") == MAX_ALIKE
    assert left_open("<p>" + "".join(f"<b a={n}>" for n in range(9)) + "</p>") == 9
    assert left_open("<p><b a=1 c=2><b a=1><b a=1><b a=1><b a=1></p>") == 1 + MAX_ALIKE


def test_a_formatting_element_moves_into_eight_blocks_as_in_the_parser() -> None:
    for blocks in (1, MAX_ADOPTIONS - 1, MAX_ADOPTIONS, MAX_ADOPTIONS + 1, 2 * MAX_ADOPTIONS):
        html = "<b>" + "<div>" * blocks + "</b>" + "<g>"
        bold = sum(node.tag == "b" for _, node in walk(html))
        assert bold == min(blocks, MAX_ADOPTIONS) + 1
        assert is_deep_enough(html * 40)
