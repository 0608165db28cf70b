from __future__ import annotations

from stages.text.stop_words import STOP_WORDS
from tests.stages.text.plain import words_of


def test_lists_of_stop_words_are_words_without_repeats() -> None:
    for words in STOP_WORDS.values():
        assert len(set(words)) == len(words) >= 8
        assert all(word == word.lower() and len(words_of(word)) == 1 for word in words)
