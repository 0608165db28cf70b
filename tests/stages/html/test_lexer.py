"""The tokeniser of the guard, function by function as plain Python, against a real parser and the standard's rules."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from stages.html.names import KNOWN, RAW, SCRIPT

COMMENT = re.compile(rb"(?:-?>|.*?--!?>|.*)", re.DOTALL)


def rows() -> np.ndarray:
    return np.zeros((8, 7), np.int64)


def page_of(html: bytes | str) -> np.ndarray:
    return np.frombuffer(html.encode() if isinstance(html, str) else html, np.uint8).astype(np.int64)


def bits_of(modules: SimpleNamespace, name: str) -> int:
    state = rows()
    modules.lexer.read_name(page_of(name + ">"), 0, state)
    with np.errstate(over="ignore"):
        return int(modules.lexer.bits_of(state, KNOWN))


def read_attributes(modules: SimpleNamespace, tag: str, name: str = "p") -> tuple[int, int, int]:
    """Return the index after the tag, and the number and flags of its attributes."""
    state = rows()
    lexer = modules.lexer
    end = lexer.read_attributes(page_of(tag), 0, state, lexer.WORDS, bits_of(modules, name))
    return end, int(state[lexer.STATE, lexer.ATTRIBUTES]), int(state[lexer.STATE, lexer.FLAGS])


@given(st.text("aZ-0ü<'\"=", min_size=1, max_size=20), st.sampled_from([" ", ">", "/", "\t", "\n", "\f", ""]))
def test_a_name_ends_at_white_space_a_slash_or_the_tag(interpreted: SimpleNamespace, name: str, after: str) -> None:
    state, lexer = rows(), interpreted.lexer
    data = name.encode()
    end = lexer.read_name(page_of(b"<" + data + after.encode() + b"x" * bool(after)), 1, state)
    assert end == 1 + len(data)
    assert (state[lexer.TAG, lexer.START], state[lexer.TAG, lexer.LENGTH]) == (1, len(data))
    packed = data.lower()[:16].ljust(16, b"\0")
    assert state[lexer.TAG, : lexer.HIGH + 1].astype(">i8").tobytes() == packed


@pytest.mark.parametrize("name", ["p", "P", "blockquote", "ANNOTATION-xml", "td"])
def test_known_names_have_bits_in_any_case(interpreted: SimpleNamespace, name: str) -> None:
    assert bits_of(interpreted, name) == bits_of(interpreted, name.lower()) != 0


@given(st.text("abpx-1", min_size=1, max_size=24))
def test_unknown_names_have_none(interpreted: SimpleNamespace, name: str) -> None:
    packed = name.encode().ljust(16, b"\0")
    is_known = len(name) <= 16 and any(row[:2].astype(">i8").tobytes() == packed for row in KNOWN)
    assert (bits_of(interpreted, name) != 0) == is_known


@pytest.mark.parametrize(
    ("tag", "count"),
    [
        (">", 0),
        (" >", 0),
        (" a>", 1),
        (" a b>", 2),
        (" a=b>", 1),
        (" a = b>", 1),
        (" a='b c' d=\"e>f\">", 2),
        ("/a/b>", 2),
        (" a=b/c>", 1),
        (" =a>", 1),
        (" a='b'c>", 2),
        (" a='b", 1),
        (" a", 1),
    ],
)
def test_attributes_are_counted(interpreted: SimpleNamespace, tag: str, count: int) -> None:
    assert read_attributes(interpreted, tag)[:2] == (len(tag), count)


def test_a_tag_that_closes_itself_says_so(interpreted: SimpleNamespace) -> None:
    closed = interpreted.lexer.CLOSED
    for tag, flag in (("/>", closed), (" a/>", closed), (" a=b/>", 0), (" a='b'/>", closed), ("/ >", 0), (">/>", 0)):
        assert read_attributes(interpreted, tag)[2] == flag


@settings(max_examples=200)
@given(st.text("ab='\"/> ", max_size=30))
def test_a_tag_ends_where_it_ends_for_a_parser(interpreted: SimpleNamespace, tag: str) -> None:
    end, count, _ = read_attributes(interpreted, tag + "'\"></p>")
    parsed = HTMLTree.parse(f"<p{tag}'\"></p>").body.first_child
    if tag[:1] in ("a", "b", "=", "'", '"') or parsed is None:
        return
    rest = (tag + "'\"></p>")[end:].removesuffix("</p>")
    assert parsed.text == rest
    assert count >= len(parsed.attrs)


@pytest.mark.parametrize(
    ("tag", "name", "flag"),
    [
        (" COLOR=x>", "font", "FONT_ATTRIBUTE"),
        (" a face>", "font", "FONT_ATTRIBUTE"),
        (" size='1'>", "font", "FONT_ATTRIBUTE"),
        (" colour=x>", "font", ""),
        (" color=x>", "b", ""),
        (" encoding=Text/HTML>", "annotation-xml", "HTML_ENCODING"),
        (" encoding='application/xhtml+xml'>", "annotation-xml", "HTML_ENCODING"),
        (" encoding=text/htm>", "annotation-xml", ""),
        (" encoding=text/html>", "p", ""),
    ],
)
def test_attributes_that_decide_what_an_element_is(
    interpreted: SimpleNamespace, tag: str, name: str, flag: str
) -> None:
    assert read_attributes(interpreted, tag, name)[2] == (getattr(interpreted.lexer, flag) if flag else 0)


@settings(max_examples=300)
@given(st.text("->!a<", max_size=14))
def test_a_comment_ends_as_the_standard_says(interpreted: SimpleNamespace, text: str) -> None:
    page = b"<!--" + text.encode() + b"x"
    match = COMMENT.match(page, 4)
    assert match
    assert interpreted.lexer.skip_markup(page_of(page), 0, 0, interpreted.lexer.WORDS) == match.end()


@pytest.mark.parametrize(
    ("markup", "foreign", "length"),
    [
        ("<!doctype html>x", False, 15),
        ("<?php > ?>x", False, 7),
        ("</ p>x", False, 5),
        ("<!", False, 2),
        ("<![CDATA[ > ]]>x", False, 11),
        ("<![CDATA[ > ]]>x", True, 15),
        ("<![CDATA[ ]]", True, 12),
        ("<![cdata[ > ]]>x", True, 11),
    ],
)
def test_declarations_end_at_the_first_angle_bracket_and_sections_only_in_svg(
    interpreted: SimpleNamespace, markup: str, foreign: bool, length: int
) -> None:
    assert interpreted.lexer.skip_markup(page_of(markup), 0, foreign, interpreted.lexer.WORDS) == length


def raw_end(modules: SimpleNamespace, name: str, text: str) -> int:
    """Return how much of ``text`` is inside the raw text element ``name``."""
    html = f"<{name}>{text}".encode()
    page, state = page_of(html), rows()
    start = modules.lexer.read_name(page, 1, state) + 1
    opens = np.flatnonzero(page == ord("<"))
    return int(modules.lexer.raw_end(page, opens, 0, start, state, bits_of(modules, name))) - start


@pytest.mark.parametrize("name", ["style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"])
def test_raw_text_ends_at_its_own_end_tag(interpreted: SimpleNamespace, name: str) -> None:
    assert bits_of(interpreted, name) & RAW
    for text, inside in [
        (f"<b></b></{name}x></{name.upper()} >", len(f"<b></b></{name}x>")),
        (f"<!-- </{name}>", 5),
        (f"</{name}", len(f"</{name}")),
        ("", 0),
    ]:
        assert raw_end(interpreted, name, text) == inside


SCRIPT_PIECES = ["<!--", "-->", "<script>", "</script>", "<script", "</script ", "a", "-", "--!>", "<!", "<"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(SCRIPT_PIECES), max_size=8))
def test_a_script_ends_where_it_ends_for_a_parser(interpreted: SimpleNamespace, pieces: list[str]) -> None:
    assert bits_of(interpreted, "script") & SCRIPT
    text = "".join(pieces) + "x"
    script = HTMLTree.parse(f"<body><script>{text}").document.query_selector("script")
    assert script is not None
    assert text[: raw_end(interpreted, "script", text)] == script.text
