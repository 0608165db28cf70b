"""The rules: main content where there is enough, all text where it is a sliver."""

from __future__ import annotations

from stages.html.rules import ENOUGH_CHARS, extract_by_rules

PARAGRAPH = "<p>The mill stands beside the river, and its wheel still turns in spring, as the miller says.</p>"
NAV = "<nav><ul><li><a href=/>Home</a><li><a href=/a>About us</a></ul></nav>"


def test_enough_main_content_is_taken_alone() -> None:
    text = extract_by_rules(f"<body>{NAV}<article>{PARAGRAPH * 40}</article>")
    assert len(text) > ENOUGH_CHARS
    assert "About us" not in text


def test_a_sliver_of_a_page_is_not_its_text() -> None:
    menu = "<div class='sidebar'>" + "<p>A card of the collection.</p>" * 99 + "</div>"
    text = extract_by_rules(f"<body>{menu}<article><p>Short.</p></article>")
    assert text.count("A card of the collection.") == 99


def test_a_short_page_keeps_its_main_content() -> None:
    text = extract_by_rules(f"<body>{NAV}<article>{PARAGRAPH * 3}</article>")
    assert text.count("The mill") == 3


def test_an_empty_page() -> None:
    assert extract_by_rules("") == ""
