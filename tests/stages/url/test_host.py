from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.url.host import host_of


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Example.ORG/a", "example.org"),
        ("https://user:pass@example.org:8443/?q=http://other/", "example.org"),
        ("http://example.org.", "example.org"),
        ("//example.org/a", "example.org"),
        ("http:\\\\example.org\\a", "example.org"),
        ("http:///example.org", "example.org"),
        ("http://example.org?x@y", "example.org"),
        ("http://[2001:DB8::1]:80/", "2001:db8::1"),
        ("http://[broken", "broken"),
        ("http://bücher.example/", "bücher.example"),
        ("dns:example.org", ""),
        ("urn:uuid:1", ""),
        ("words", ""),
        ("", ""),
    ],
)
def test_hosts(url: str, host: str) -> None:
    assert host_of(url) == host


@given(st.text())
def test_no_text_raises_and_a_host_has_no_path(url: str) -> None:
    assert "/" not in host_of("http://" + url)
    host_of(url)
