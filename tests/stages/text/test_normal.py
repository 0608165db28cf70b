from __future__ import annotations

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text.normal import MAYBE, combining_classes, composed, may_change
from stages.text.utf8 import utf8_buffers

MARKS = list("\u0301\u0323\u0327\u0345\u093c\u0e38\u1161\u11a8\uac00\u212b\u0958e")
TEXTS = st.lists(
    st.sampled_from([*MARKS, "a" * 70, "é", "中", "हिन्दी", "한글", "ที่", "’", " "])
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=3),
    max_size=8,
).map("".join)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.none() | TEXTS, max_size=5), st.data())
def test_strings_are_those_of_nfc(texts: list[str | None], data: st.DataObject) -> None:
    expected = [unicodedata.normalize("NFC", text or "") for text in texts]
    array = pa.array(texts, data.draw(st.sampled_from([pa.string(), pa.large_string()])))
    assert composed(array).to_pylist() == expected
    cut = data.draw(st.integers(0, len(texts)))
    assert composed(array[cut:]).to_pylist() == expected[cut:]
    assert composed(array).type == array.type


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_what_passes_is_in_nfc(texts: list[str]) -> None:
    found = may_change(*utf8_buffers(pa.array(texts)))
    assert all(
        unicodedata.is_normalized("NFC", text) for text, suspect in zip(texts, found, strict=True) if not suspect
    )


def test_no_character_that_changes_alone_or_behind_a_letter_is_missed() -> None:
    table = combining_classes()
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    for point in points:
        if not unicodedata.is_normalized("NFC", chr(point)):
            assert table[point] == MAYBE
        elif unicodedata.combining(chr(point)):
            assert table[point] in (unicodedata.combining(chr(point)), MAYBE)


def test_text_in_nfc_is_not_looked_at_again() -> None:
    texts = [
        "naïve café",
        "Привет",
        "東京の本屋",
        "“quoted” – …",
        "हिन्दी में",
        "ภาษาไทย",
        "العربيّة",
        "한국어",
        "🙂👍🏽",
        "x" * 200,
    ]
    assert not may_change(*utf8_buffers(pa.array(texts))).any()
    array = pa.array(texts)
    assert composed(array) is array


@pytest.mark.parametrize("padding", [0, 1, 63, 64, 65, 200])
def test_the_place_in_a_block_does_not_matter(padding: int) -> None:
    text = "a" * padding + "e\u0301" + "b" * padding
    assert may_change(*utf8_buffers(pa.array([text, "a" * padding]))).tolist() == [True, False]
    marks = "a" * padding + "q\u0323\u0307" + "b" * padding
    assert not may_change(*utf8_buffers(pa.array([marks.replace("\u0323\u0307", "\u0e38\u0e48")]))).any()
    assert may_change(*utf8_buffers(pa.array([marks.replace("\u0323\u0307", "\u0e48\u0e38")]))).all()


def test_malformed_text_is_read_within_its_bounds() -> None:
    raw = np.frombuffer(b"e\xcc" + b"\x81" + b"\xe2\x80" * 40, np.uint8)
    bounds = np.array([0, 2, len(raw)])
    assert may_change(raw, bounds).tolist() == [False, False]
