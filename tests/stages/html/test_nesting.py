"""The scan: depth, tags and attributes as a parser counts them, in time linear in the page."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.html.guard import measure
from tests.stages.html.pages import NO_LIMIT, PIECES, depth_of, scan_interpreted


@pytest.mark.parametrize(
    ("html", "depth"),
    [
        ("", 0),
        ("text < text", 0),
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
    assert depth_of(html) == depth


def test_tags_are_counted_and_what_looks_like_one_is_not() -> None:
    assert measure("<p>a</p><br/><!-- <b> --><?php <i> ?><!doctype html>1 < 2<3 </>", 9, NO_LIMIT, NO_LIMIT)[1] == 3
    assert measure("<script>'<p>'</script><p>", 9, NO_LIMIT, NO_LIMIT)[1] == 3


def test_the_most_attributes_are_those_of_one_tag() -> None:
    page = "<p a><p a b c><p a b><script>'<p " + "a " * 50 + ">'</SCRIPT><!-- <p " + "a " * 50 + "> -->"
    assert measure(page, 9, NO_LIMIT, NO_LIMIT)[2] == 3


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_the_compiled_scan_is_the_interpreted_one(interpreted: SimpleNamespace, pieces: list[str]) -> None:
    html = "".join(pieces)
    assert scan_interpreted(interpreted, html, 40)[0] == measure(html, 40, NO_LIMIT, NO_LIMIT)


@pytest.mark.parametrize(
    "piece",
    ['<p "', "<a b='<a b=\"", "<!--", "<!", "<a ", "<script>", "<script></scriptx", "<", "<a/", "<a=", "<a '>", "</"],
)
def test_the_scan_reads_every_byte_a_bounded_number_of_times(interpreted: SimpleNamespace, piece: str) -> None:
    for page in (piece * (6_000 // len(piece)), "<a" + piece[-1] * 6_000, ("<a" + piece[-1] * 60) * 100):
        _, reads = scan_interpreted(interpreted, page)
        assert reads < 12 * len(page)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4))
def test_twice_the_page_is_no_more_than_twice_the_work(interpreted: SimpleNamespace, pieces: list[str]) -> None:
    once, twice = ("".join(pieces) * times for times in (40, 80))
    assert scan_interpreted(interpreted, twice)[1] <= 2.2 * scan_interpreted(interpreted, once)[1] + 200
