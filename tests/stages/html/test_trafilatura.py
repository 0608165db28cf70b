"""trafilatura as a choice: refused by size before its limits, told plainly where it is not installed."""

from __future__ import annotations

import importlib.util

import pytest

from shards.errors import UserError
from stages.html.trafilatura import MAX_CHARS, MAX_TAGS, extract_with_trafilatura, require_installed, too_large

INSTALLED = importlib.util.find_spec("trafilatura") is not None


def test_large_pages_are_refused_by_what_they_are() -> None:
    assert too_large("<p>a" * 100) is None
    assert too_large("a" * MAX_CHARS) is None
    assert too_large("a" * (MAX_CHARS + 1)) == (
        MAX_CHARS + 1,
        "2000001 characters, the limit for trafilatura is 2000000",
    )
    assert too_large("<p>" * (MAX_TAGS + 1)) == (MAX_TAGS + 1, "50001 tags, the limit for trafilatura is 50000")


@pytest.mark.skipif(INSTALLED, reason="trafilatura is installed")
def test_it_says_what_is_missing() -> None:
    with pytest.raises(UserError, match="not installed"):
        require_installed()


@pytest.mark.skipif(not INSTALLED, reason="trafilatura is an extra")
def test_it_extracts() -> None:
    require_installed()
    paragraph = "<p>The mill stands beside the river, and its wheel still turns in spring, as the miller says.</p>"
    html = f"<body><nav><a href=/>Home</a></nav><article>{paragraph * 9}</article></body>"
    text = extract_with_trafilatura(html)
    assert "The mill stands" in text
    assert "Home" not in text
