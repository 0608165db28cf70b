"""Media types: the Fetch standard's examples, and what servers send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.readers.media import BINARY, binary_media, content_type_of, media_of, sniff, values_of


@pytest.mark.parametrize(
    ("header", "found"),
    [
        # Those of the standard.
        ("text/plain;charset=gbk, text/html", "text/html"),
        ("text/html;charset=gbk;a=b, text/html;x=y", "text/html;charset=gbk;a=b"),
        ("text/html;charset=gbk;a=b, text/html;x=y;charset=utf-8", "text/html;x=y;charset=utf-8"),
        ('text/html;x=",text/plain', 'text/html;x=",text/plain'),
        ("text/html, cannot-parse", "text/html"),
        ("text/html, */*", "text/html"),
        ("*/*, text/html", "text/html"),
        ("text/html,", "text/html"),
        ("", ""),
        ("cannot-parse", ""),
        ("text/html charset=utf-8", ""),
        ("text/html:charset=utf-8", ""),
        ("charset=utf-8", ""),
        (" Text/HTML ; charset=x", "Text/HTML ; charset=x"),
        ("text/html; charset=iso-8859-2, text/html", "text/html; charset=iso-8859-2"),
    ],
)
def test_the_last_valid_value_counts(header: str, found: str) -> None:
    assert content_type_of(header) == found


@pytest.mark.parametrize(
    ("content_type", "media"),
    [("Text/HTML;a=b", "text/html"), ("unknown/unknown", ""), ("application/unknown", ""), ("*/*", ""), ("html", "")],
)
def test_a_type_that_says_nothing_is_none(content_type: str, media: str) -> None:
    assert media_of(content_type) == media


@given(st.text('ab/,;" \\=', max_size=40))
def test_no_header_is_lost_or_endless(header: str) -> None:
    assert ",".join(values_of(header)) == header
    found = content_type_of(header)
    assert found == "" or media_of(found)


def test_quoted_commas_part_no_values() -> None:
    assert values_of('a;b="c,d", e') == ['a;b="c,d"', " e"]


@given(st.binary(max_size=100))
def test_every_body_has_a_media_type(body: bytes) -> None:
    assert sniff(body) in ("text/html", "text/xml", "text/plain", "application/octet-stream")
    assert (binary_media(body) != "") == body.startswith(tuple(BINARY))
