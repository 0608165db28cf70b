"""Hints in class names and the like: words anywhere inside, with hyphens and underscores left out."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.html import hints
from stages.html.hints import FOUND, STATES, hints_of


@numba.njit
def _call(page, states, found):  # type: ignore[no-untyped-def]
    return hints_of(page, 0, len(page), states, found)


def found_in(text: str) -> int:
    return int(_call(np.frombuffer(text.encode() or b" ", np.uint8), STATES, FOUND))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("navbar-left", hints.NAVIGATION),
        ("site_FOOTER2", hints.FOOTER),
        ("cook-ie", hints.CONSENT),
        ("coo kie", 0),
        ("xyz", 0),
        ("sr-only", hints.HIDDEN),
    ],
)
def test_words(text: str, wanted: int) -> None:
    assert found_in(text) == wanted


@given(
    st.lists(
        st.sampled_from(["nav", "n", "av", "foot", "er", "comment", "com", "main", "-", "_", " ", "9"]), max_size=12
    )
)
def test_it_finds_what_a_plain_search_finds(pieces: list[str]) -> None:
    text = "".join(pieces)
    wanted = 0
    for part in "".join(char for char in text if char not in "-_").replace("9", " ").split():
        for bit, line in hints._WORDS.items():
            if any(word in part for word in line.split()):
                wanted |= bit
    assert found_in(text) == wanted
