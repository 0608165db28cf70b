"""The table of element names, checked against what a real parser does with each of them."""

from __future__ import annotations

import numpy as np
import pytest
from resiliparse.parse.html import HTMLTree

from stages.html import names
from stages.html.names import KNOWN, TABLE_SIZE


def known() -> dict[str, int]:
    """Return the table as a dictionary, read row by row."""
    rows = [(row[:2].astype(">i8").tobytes().rstrip(b"\0").decode(), int(row[2])) for row in KNOWN if row[2]]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def having(*bits: int) -> list[str]:
    return sorted(name for name, found in known().items() if all(found & bit for bit in bits))


def body(html: str) -> str:
    return HTMLTree.parse(html).body.html


def test_every_bit_is_one_and_has_one_name() -> None:
    bits = [bit for name, bit in vars(names).items() if name.isupper() and name[0] != "_"]
    bits = [bit for bit in bits if isinstance(bit, int) and bit != TABLE_SIZE]
    assert all(bit.bit_count() == 1 for bit in bits)
    assert len(set(bits)) == len(bits)
    assert max(bits) < 1 << 62


def test_the_table_is_half_empty_and_every_name_is_found_from_its_slot() -> None:
    found = known()
    assert KNOWN.shape == (TABLE_SIZE, 3)
    assert KNOWN.dtype == np.int64
    assert len(found) < TABLE_SIZE / 2
    for name, bits in found.items():
        low, high = names._pack(name)
        slot = names._slot(low, high)
        while tuple(KNOWN[slot, :2]) != (low, high):
            assert KNOWN[slot, 0], f"{name} is behind an empty row"
            slot = (slot + 1) % TABLE_SIZE
        assert KNOWN[slot, 2] == bits


def test_names_fit_their_columns_and_are_in_lower_case() -> None:
    for name in known():
        assert len(name) <= 16
        assert name == name.lower()
        assert name.isascii()


# Elements that a parser builds only inside a table or a frameset, or under another name.
ELSEWHERE = {"caption", "col", "frame", "image", "td", "th"}


@pytest.mark.parametrize("name", [name for name in having(names.VOID) if name not in ELSEWHERE])
def test_a_void_element_has_no_content(name: str) -> None:
    assert body(f"<{name}><i>x</i>").endswith("<i>x</i></body>")


@pytest.mark.parametrize("name", having(names.RAW))
def test_tags_in_raw_text_are_text(name: str) -> None:
    assert HTMLTree.parse(f"<div><{name}><i></i></{name}>").document.query_selector("i") is None


@pytest.mark.parametrize("name", having(names.CLOSES_P))
def test_what_closes_a_paragraph_is_not_inside_it(name: str) -> None:
    assert HTMLTree.parse(f"<p><{name}>").document.query_selector(f"p > {name}") is None


@pytest.mark.parametrize("name", sorted({*known()} - {*having(names.CLOSES_P), *having(names.FLAT)} - ELSEWHERE))
def test_what_does_not_close_a_paragraph_is(name: str) -> None:
    found = {node.tag.lower() for node in HTMLTree.parse(f"<p><{name}>").document.query_selector_all("p > *")}
    assert name in found


@pytest.mark.parametrize("name", having(names.FORMATTING))
def test_a_formatting_element_is_reopened_and_no_other(name: str) -> None:
    assert len(HTMLTree.parse(f"<p><{name}></p>x").document.query_selector_all(name)) == 2
    assert len(HTMLTree.parse("<p><span></p>x").document.query_selector_all("span")) == 1


# The standard has "sup" among these; the parser at hand does not, so the guard takes more elements to be open than it.
@pytest.mark.parametrize("name", [name for name in having(names.BREAKOUT) if name != "sup"])
def test_what_cannot_be_inside_svg_ends_it(name: str) -> None:
    assert HTMLTree.parse(f"<svg><{name}>").document.query_selector(f"svg > {name}") is None


# Of the others, what is inside is subject to rules of its own.
@pytest.mark.parametrize(
    "name", [name for name in having(names.BARRIER) if name not in ("select", "table", "template")]
)
def test_an_end_tag_does_not_reach_across_a_barrier(name: str) -> None:
    start = f"<table><{name}>" if name in ELSEWHERE else f"<{name}>"
    tree = HTMLTree.parse(f"<div>{start}</div><em>")
    assert tree.document.query_selector(f"div {name} em") is not None


def test_kinds_that_exclude_each_other() -> None:
    for one, other in [
        (names.VOID, names.FORMATTING),
        (names.VOID, names.SPECIAL & names.BARRIER),
        (names.FORMATTING, names.SPECIAL),
        (names.RAW, names.FORMATTING),
        (names.FLAT, names.FORMATTING),
    ]:
        assert having(one, other) == []
    assert having(names.FORMATTING) == having(names.LISTED)
    assert set(having(names.MARKER)) <= set(having(names.BARRIER))
