from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.url.entries import ascii_host, is_address, path_of, without_mirror


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        (".a.example.", "a.example"),
        ("a" * 300 + ".bad.example", "bad.example"),
        ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
    ],
)
def test_hosts_are_named_as_the_dns_names_them(host: str, expected: str) -> None:
    assert ascii_host(host) == expected


@pytest.mark.parametrize(
    ("host", "expected"), [("10.0.0.1", True), ("::1", True), ("10.0.0.1.example", False), ("1.2.3", False)]
)
def test_addresses(host: str, expected: bool) -> None:
    assert is_address(host) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("www.a.example", "a.example"),
        ("ftp12.a.example", "a.example"),
        ("www.example", "www.example"),
        ("wwwa.b.c", "wwwa.b.c"),
    ],
)
def test_a_first_label_of_mirrors_is_left_out(host: str, expected: str) -> None:
    assert without_mirror(host) == expected


@given(st.text(max_size=80))
def test_any_text_has_a_path(text: str) -> None:
    path = path_of(f"http://h/{text}")
    assert path.isascii()
    assert path == path.lower()
