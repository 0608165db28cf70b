"""Some thousand hostile pages: whatever the guard lets pass is parsed and extracted, in proportion to its length."""

from __future__ import annotations

import pytest
from resiliparse.parse.html import HTMLTree

from stages.html.blocks import Page
from stages.html.extraction import extract
from stages.html.guard import MAX_REOPENED_BYTES, too_costly
from tests.stages.html.hostile import page

PER_CHAR = 40
"""Characters of tree that one character of a page may make, beyond what reopening may: ``<p>`` makes ``<p></p>``."""


@pytest.mark.parametrize("first", range(0, 4_000, 500))
def test_what_the_guard_lets_pass_stays_in_proportion(first: int) -> None:
    passed = 0
    for seed in range(first, first + 500):
        html = page(seed, 3_000)
        if too_costly(html):
            continue
        passed += 1
        written = str(HTMLTree.parse(html))
        most = PER_CHAR * len(html) + 4 * MAX_REOPENED_BYTES
        assert len(written) <= most, f"seed {seed}"
        assert len(Page(written).elements) <= len(written) / 3 + 2
        for form in ("plain", "markdown_links"):
            assert len(extract(html, form).text) <= most, f"seed {seed}"
    assert 100 < passed < 500


def test_a_seed_is_always_the_same_page() -> None:
    assert page(7, 1_000) == page(7, 1_000) != page(8, 1_000)
