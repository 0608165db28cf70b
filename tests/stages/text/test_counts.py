"""Stop words, against the same definition in plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text import word_scan
from stages.text.counts import count_stop_words
from stages.text.stop_words import STOP_WORDS
from stages.text.word_scan import Words, scan_words
from tests.stages.text.plain import TEXTS, words_of


def count(texts: Sequence[str | None], languages: Sequence[str], lists: Mapping[str, Sequence[str]]) -> list[int]:
    column = pa.array(texts, pa.string())
    return count_stop_words(Words.of(scan_words(column)), column, languages, lists).tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.sampled_from(["en", "de", "xx"])), max_size=6))
def test_stop_words_agree_with_plain_python(rows: list[tuple[str, str]]) -> None:
    texts, languages = [text for text, _ in rows], [language for _, language in rows]
    expected = [len(set(words_of(text)) & set(STOP_WORDS.get(language, ()))) for text, language in rows]
    assert count(texts, languages, STOP_WORDS) == expected


def test_stop_words_are_found_in_any_case_and_beside_punctuation() -> None:
    text = '"The" (OF) and-or the'
    assert count([text], ["en"], STOP_WORDS) == [3]
    assert count([text], ["xx"], STOP_WORDS) == [0]


def test_documents_in_several_languages_have_their_own_stop_words() -> None:
    assert count(["und das the"] * 3 + [None], ["de", "en", "xx", "en"], STOP_WORDS) == [2, 1, 0, 0]


@pytest.mark.parametrize("end", ["of", "中 the of", "é of. and"])
def test_stop_words_are_found_beyond_the_words_that_a_scan_holds(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    texts, languages = ["x", "the " + "cat " * 30 + end, "y\n" * 30 + end], ["en"] * 3
    expected = [len(set(words_of(text)) & set(STOP_WORDS["en"])) for text in texts]
    monkeypatch.setattr(word_scan, "MAX_WORDS", 10)
    assert count(texts, languages, STOP_WORDS) == expected
