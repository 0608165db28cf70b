"""Charsets: the standard's order of sources, its own labels, and its prescan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.html.charset import charset_of, codec_of, declared, decode, prescan

CONFORMANCE = Path(__file__).parents[4] / "shared" / "data" / "html" / "html5lib_encoding"


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("UTF8", "utf-8"),
        (" latin1 ", "cp1252"),
        ("gb2312", "gb18030"),
        ("x-sjis", "cp932"),
        ("ks_c_5601-1987", "cp949"),
        ("win-1251", "cp1251"),
        ("x-mac-cyrillic", "mac-cyrillic"),
        ("unicode_escape", None),
        ("base64", None),
        ("rot13", None),
        ("idna", None),
        ("", None),
        (None, None),
    ],
)
def test_labels_are_the_webs_and_not_pythons(label: str | None, codec: str | None) -> None:
    assert codec_of(label) == codec


@given(st.text(max_size=20))
def test_every_codec_that_a_label_gives_decodes_text(label: str) -> None:
    codec = codec_of(label)
    assert codec is None or isinstance(b"abc\xff".decode(codec, "replace"), str)


@pytest.mark.parametrize(
    ("content_type", "codec"),
    [
        ("text/html; charset=utf-8", "utf-8"),
        ('text/html;CHARSET = "koi8-r"', "koi8-r"),
        ("text/html; charset=iso-8859-2, text/html", "iso8859-2"),
        ("text/html; charset=", None),
        ("text/html", None),
        (None, None),
    ],
)
def test_content_types(content_type: str | None, codec: str | None) -> None:
    assert declared(content_type) == codec


def test_a_mark_overrules_the_header_and_the_header_the_page() -> None:
    page = b'<meta charset="koi8-r">'
    assert charset_of(b"\xef\xbb\xbf" + page, "text/html; charset=cp1251", html=True) == "utf-8"
    assert charset_of(page, "text/html; charset=windows-1251", html=True) == "cp1251"
    assert charset_of(page, "text/html; charset=bogus", html=True) == "koi8-r"
    assert charset_of("日本語".encode("utf-16"), None, html=False) == "utf-16-le"
    assert decode(b"\xef\xbb\xbfabc", "utf-8") == "abc"


@pytest.mark.parametrize(
    "page",
    [
        b"<meta charset=koi8-r>",
        b"<META content='text/html; charset=koi8-r' HTTP-EQUIV=Content-Type>",
        b"<!-- <meta charset=utf-8> --><meta charset=koi8-r>",
        b"<p title='<meta charset=utf-8>'><meta charset=koi8-r>",
        b"<meta name=a charset=bogus><meta/charset='koi8-r'/>",
    ],
)
def test_prescan(page: bytes) -> None:
    assert prescan(page) == "koi8-r"


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200), st.text(max_size=30))
def test_any_body_has_a_charset_that_decodes_it(body: bytes, content_type: str) -> None:
    for html in (True, False):
        decode(body, charset_of(body, content_type, html=html)).encode("utf-8")


@pytest.mark.shared_data
def test_the_sniffing_conformance_cases_of_html5lib() -> None:
    if not CONFORMANCE.is_dir():
        pytest.skip("the conformance cases need the shared data folder beside the checkout")
    wrong, cases = [], 0
    for path in sorted(CONFORMANCE.glob("*.dat")):
        for data, encoding in re.findall(rb"#data\n(.*?)\n#encoding\n([^\n]*)", path.read_bytes(), re.DOTALL):
            cases += 1
            if charset_of(data, None, html=True) != codec_of(encoding.decode()):
                wrong.append((encoding, data[:80]))
    assert wrong == []
    assert cases == 82
