"""The expressions for tags: what a tag is, where it ends, and that no byte is scanned twice."""

from __future__ import annotations

import html.parser
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.html.tags import ATTRIBUTES, TAGS


def tags(page: str) -> list[tuple[str, str]]:
    """Return (name, text) of each tag; the name is empty for comments and declarations."""
    return [(tag[1] or "", tag[0]) for tag in TAGS.finditer(page)]


def attributes(tag: str) -> list[tuple[str, str]]:
    (found,) = TAGS.finditer(tag)
    return [(name, double or single or bare) for name, double, single, bare in ATTRIBUTES.findall(found[2])]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("a<p>b</P>c", [("p", "<p>"), ("/P", "</P>")]),
        ("<br/><x-y z>", [("br", "<br/>"), ("x-y", "<x-y z>")]),
        ("<p title='>'><p title=\">\">", [("p", "<p title='>'>"), ("p", '<p title=">">')]),
        ("<!-- <p> --><p>", [("", "<!-- <p> -->"), ("p", "<p>")]),
        ("<!--> <!---> <!-- --!> <p>", [("", "<!-->"), ("", "<!--->"), ("", "<!-- --!>"), ("p", "<p>")]),
        ("<!-- <p>", [("", "<!-- <p>")]),
        ("<!doctype html><?php <b> ?>", [("", "<!doctype html>"), ("", "<?php <b>")]),
        ("</ p></>", [("", "</ p>"), ("", "</>")]),
        ("1 < 2 <3 <", []),
        ("<p title='", [("p", "<p title='")]),
        ("<p", [("p", "<p")]),
    ],
)
def test_tags(page: str, found: list[tuple[str, str]]) -> None:
    assert tags(page) == found


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("<p a b=c d='e' f=\"g\">", [("a", ""), ("b", "c"), ("d", "e"), ("f", "g")]),
        ("<p/a/b>", [("a", ""), ("b", "")]),
        ("<p a = b c= 'd'>", [("a", "b"), ("c", "d")]),
        ("<p a=b/c d=e/>", [("a", "b/c"), ("d", "e/")]),
        ("<p a='b'c=d>", [("a", "b"), ("c", "d")]),
        ("<p =a b>", [("=a", ""), ("b", "")]),
        ("<p>", []),
    ],
)
def test_attributes(tag: str, found: list[tuple[str, str]]) -> None:
    assert attributes(tag) == found


VALUE = st.text("ab=<'/ ", max_size=5)


@given(st.lists(st.tuples(st.from_regex(r"[a-z]{1,3}", fullmatch=True), VALUE), max_size=5), st.booleans())
def test_quoted_attributes_are_those_of_pythons_parser(pairs: list[tuple[str, str]], closed: bool) -> None:
    tag = "<p" + "".join(f' {name}="{value}"' for name, value in pairs) + (" />" if closed else ">")
    seen: list[tuple[str, str]] = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.extend((key, value or "") for key, value in attrs)

    Parser(convert_charrefs=False).feed(tag)
    assert attributes(tag) == seen == pairs


@settings(max_examples=200)
@given(st.text("<>!-/?'\"= abp", max_size=60))
def test_tags_begin_at_an_angle_bracket_and_never_overlap(page: str) -> None:
    end = 0
    for tag in TAGS.finditer(page):
        assert page[tag.start()] == "<"
        assert tag.start() >= end
        assert tag[0].endswith(">") or tag.end() == len(page)
        end = tag.end()


@pytest.mark.parametrize("piece", ['<p "', "<a b='<a b=\"", "<!--", "<!", "<a ", "<a/", "<a=", "<a '>", "</", "<a b="])
def test_the_expression_is_linear_in_hostile_pages(piece: str) -> None:
    def seconds(chars: int) -> float:
        page = piece * (chars // len(piece))
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            for _ in TAGS.finditer(page):
                pass
            best = min(best, time.process_time() - start)
        return best

    # Eight times the page would take 64 times as long if the expression looked back.
    assert seconds(400_000) < 24 * max(seconds(50_000), 1e-3)
