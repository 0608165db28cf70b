"""Kinds of character, against what Unicode says of them."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.html import characters
from stages.html.characters import kind_of, length_of


@numba.njit
def _kind(page, i):  # type: ignore[no-untyped-def]
    return kind_of(page, i), length_of(page[i])


def kind(char: str) -> int:
    found, size = _kind(np.frombuffer(char.encode(), np.uint8), 0)
    assert size == len(char.encode())
    return int(found)


@pytest.mark.parametrize(
    ("chars", "name"),
    [
        (" \t\f\u00a0\u3000", "SPACE"),
        ("\n\r", "LINE_END"),
        (".,;!?،؛؟۔։।॥。、！，？：።។", "PUNCTUATION"),
        ("059", "DIGIT"),
        ("AZАЯ", "UPPER"),
        ("水あアㄅ々鿿𠀀豈", "WIDE"),
        ("กขລកကမ", "UNSPACED"),
        ("가힣", "HANGUL"),
        ("aéжहبאα-(", "OTHER"),
    ],
)
def test_kinds(chars: str, name: str) -> None:
    assert {char: kind(char) for char in chars} == dict.fromkeys(chars, getattr(characters, name))


@given(st.characters(exclude_categories=["Cs"]))
def test_any_character_has_a_kind_and_its_length(char: str) -> None:
    assert 0 <= kind(char) <= characters.HANGUL


def test_a_character_that_is_cut_off_is_read_no_further() -> None:
    assert _kind(np.frombuffer("水".encode()[:2], np.uint8), 0)[0] == characters.OTHER
