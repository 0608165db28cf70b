"""The limits of the guard: pages out of proportion are refused, others are not, and the scan itself is bounded."""

from __future__ import annotations

import pytest

from stages.html.guard import (
    MAX_ATTRIBUTES,
    MAX_COMPARED,
    MAX_DEPTH,
    MAX_DEPTH_TAGS,
    MAX_REOPENED_BYTES,
    SMALL_CHARS,
    SMALL_TAGS,
    measure,
    too_complex,
    too_costly,
)
from tests.stages.html.pages import NO_LIMIT


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("<div>" * 20_000, "elements nested deeper than 512"),
        ("<svg>" + "<g>" * 20_000, "elements nested deeper than 512"),
        ("<p>" + "".join(f"<font size={n}>" for n in range(600)) + "</p>" + "<p>x</p>" * 2_000, "deeper than 512"),
        ("<ul>" * 500 + "<li>" * 200_000, "tags nested up to 501 deep"),
        ("<p " + "a " * SMALL_CHARS + ">", f"a tag of {SMALL_CHARS} attributes, the limit is 2048"),
    ],
)
def test_pages_out_of_proportion_are_too_complex(page: str, what: str) -> None:
    found = too_complex(page)
    assert found is not None
    assert what in found[1]


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<div>" * (MAX_DEPTH + 1),
        "<p>" * SMALL_CHARS,
        "<p " + "a " * MAX_ATTRIBUTES + ">" + " " * SMALL_CHARS,
        "<ul>" * 100 + "<li><a href=x>item</a>" * 10_000,
        "<div><p>text</p></div>\n" * 10_000,
        "<table>" + "<tr><td>a<td><b>b</b>" * 10_000,
        "no tags " * SMALL_CHARS,
    ],
)
def test_pages_in_proportion_are_not(page: str) -> None:
    assert too_complex(page) is None


def test_the_measure_of_a_page_is_the_first_beyond_its_limit() -> None:
    assert too_complex("<div>" * 20_000) == (MAX_DEPTH + 1, "elements nested deeper than 512")
    deep, many = "<ul>" * 500, "<li>" * 200_000
    found = too_complex(deep + many)
    assert found is not None
    assert MAX_DEPTH_TAGS < found[0] <= MAX_DEPTH_TAGS + 501
    assert too_complex("<div>" * SMALL_TAGS + "<p " + "a " * 3_000 + ">") == (513, "elements nested deeper than 512")


def test_a_limit_ends_the_scan() -> None:
    page = "<div>" * 10_000 + "<p a b c d>"
    assert measure(page, 100, NO_LIMIT, NO_LIMIT) == (101, 101, 0)
    assert measure(page, NO_LIMIT >> 40, 10_000, NO_LIMIT) == (101, 101, 0)
    assert measure("<p a b c d><div>", 100, NO_LIMIT, 3) == (1, 1, 4)


@pytest.mark.parametrize(
    "page",
    ["<i><table>" + "<span>" * 500 + "</i>" * 1_000_000, "<b>" * 400 + "<div>" * 100 + "</b>" * 1_000_000],
)
def test_end_tags_that_search_a_deep_stack_count_against_the_limit(page: str) -> None:
    depth, tags, _ = measure(page, MAX_DEPTH, MAX_DEPTH_TAGS, NO_LIMIT)
    assert MAX_DEPTH_TAGS < depth * tags <= MAX_DEPTH_TAGS + depth
    assert too_complex(page) is not None


def test_lone_surrogates_are_no_error() -> None:
    assert too_complex("\ud800<p>" * SMALL_CHARS) is None


FONTS = "".join(f"<font size={n}>" for n in range(2_000))
TAG = " ".join(f"a{n}" for n in range(2_000))


@pytest.mark.parametrize(
    ("page", "what"),
    [
        # 39 KB that took 6 s and 1.7 GB, with fewer tags than ``too_complex`` scans.
        (FONTS + "<p>" * 2_000, "nested deeper than 512"),
        (
            "<p>" + "".join(f"<font size={n}>" for n in range(400)) + "</p>" + "<p>x</p>" * 100,
            "reopened again and again",
        ),
        ("".join(f"<p><b a{n}>" for n in range(400)), "reopened"),
        ("".join(f"<body a{n}>" for n in range(30_000)), "compared"),
        ("".join(f"<html a{n}>" for n in range(30_000)), "compared"),
        ("<p " + TAG + ">" + ("<p " + TAG + ">") * 20, "compared"),
        ("".join(f"<font {TAG} b{n}>" for n in range(20)), "compared"),
        ("<select>" + "<option>" * 20_000, "compared"),
        ("<div>" + "<option><optgroup>" * 20_000, "nested deeper"),
    ],
)
def test_what_a_parser_reopens_and_compares_is_too_costly_at_any_size(page: str, what: str) -> None:
    assert len(page) < 400_000
    found = too_costly(page)
    assert found is not None
    assert what in found[1]


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<div>" * MAX_DEPTH,
        "<p>" * 100_000,
        "<p " + "a " * MAX_ATTRIBUTES + ">",
        "<p><b>text" * 100,
        "<select>" + "<option>Country</option>" * 5_000,
        '<div class="a b" id="c" style="d"><a href="e" title="f" rel="g">text</a></div>' * 10_000,
    ],
)
def test_pages_in_proportion_are_not_too_costly(page: str) -> None:
    assert too_costly(page) is None


def test_the_limits_are_exact() -> None:
    assert too_costly("<body " + " ".join(f"a{n}" for n in range(2_000)) + ">" + "<body a>" * 5_000) is None
    options = next(n for n in range(20_000) if n * (n - 1) // 2 > MAX_COMPARED)
    assert too_costly("<option></option>" * (options - 1)) is None
    assert too_costly("<option></option>" * options) is not None
    reopened = MAX_REOPENED_BYTES // (64 + 2)
    assert too_costly("<p><b>" + "</p><p>x" * (reopened - 1)) is None
    assert too_costly("<p><b>" + "</p><p>x" * (reopened + 2)) is not None
