"""The kernel that counts for the quality heuristics, against the same definitions in plain Python."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text import counts
from stages.text.characters import BULLETS
from stages.text.counts import count_words
from stages.text.stop_words import STOP_WORDS
from tests.stages.text.plain import TEXTS, Token, tokens_of


def is_word(token: Token) -> bool:
    return token.kind.endswith("word")


def has_letter(token: Token) -> bool:
    return is_word(token) and any(character.isalpha() for character in token.text)


def runs_of(tokens: list[Token]) -> list[list[Token]]:
    groups = itertools.groupby(tokens, key=lambda token: token.kind == "space")
    return [list(run) for is_space, run in groups if not is_space]


def text_of(tokens: list[Token]) -> str:
    return "".join(token.text for token in tokens)


def plain_counts(text: str, stops: tuple[str, ...]) -> dict[int, int]:
    tokens = tokens_of(text)
    words = [token for token in tokens if is_word(token)]
    spaced = [token for token in words if token.kind == "word"]
    signs = [token for token in tokens if token.kind == "sign"]
    lines = [line for part in text.split("\n") if (line := runs_of(tokens_of(part)))]
    visible = text_of(tokens)
    return {
        counts.WORDS: len(words),
        counts.SPACED: len(spaced),
        counts.SPACED_CHARS: len(text_of(spaced)),
        counts.ALPHABETIC_WORDS: sum(map(has_letter, words)),
        counts.STOP_WORDS_FOUND: len({token.text for token in words} & set(stops)),
        counts.SIGNS: len(signs),
        counts.HASHES: visible.count("#"),
        counts.ELLIPSES: visible.count("…") + visible.count("..."),
        counts.LETTERLESS_RUNS: sum(not any(map(has_letter, run)) for run in runs_of(tokens)),
        counts.LINES: len(lines),
        counts.BULLET_LINES: sum(line[0][0].text in BULLETS for line in lines),
        counts.ELLIPSIS_LINES: sum(text_of(line[-1]).endswith(("...", "…")) for line in lines),
    }


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_counts_agree_with_plain_python(texts: list[str]) -> None:
    found = count_words(pa.array(texts, pa.string()), ["en"] * len(texts), STOP_WORDS)
    assert found.shape == (len(texts), counts.COUNTS)
    for row, text in enumerate(texts):
        assert dict(enumerate(found[row].tolist())) == plain_counts(text, STOP_WORDS["en"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=6), st.data())
def test_slices_and_nulls_of_a_column(texts: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    alone = pa.array([text or "" for text in texts[start:]], pa.large_string())
    languages = ["de", "xx", "vi", "en", "de", "en"][: len(alone)]
    found = count_words(pa.array(texts, pa.string())[start:], languages, STOP_WORDS)
    assert found.tolist() == count_words(alone, languages, STOP_WORDS).tolist()


@pytest.mark.parametrize("piece", ["the cat sat... ", "the 中, ", "- a\n", "x… \n", "... ", "|\n", "กขคงจฉชซ # "])
def test_counts_go_on_over_chunks_of_words(piece: str) -> None:
    # Longer than the words that are cut ahead, so breaks fall into lines, runs and words.
    times = 3_001
    once, many = (count_words(pa.array([piece * n]), ["en"], STOP_WORDS)[0] for n in (1, times))
    for column in (counts.WORDS, counts.SIGNS, counts.HASHES, counts.ELLIPSES, counts.LETTERLESS_RUNS):
        assert many[column] == times * once[column]
    if piece.endswith("\n"):
        assert many[counts.LINES] == times
        assert many[counts.BULLET_LINES] == times * once[counts.BULLET_LINES]
        assert many[counts.ELLIPSIS_LINES] == times * once[counts.ELLIPSIS_LINES]
    else:
        assert many[counts.LINES] == 1


@pytest.mark.parametrize(
    ("text", "letterless"),
    [("costs $3.50 | or 2,184% --- of it", 4), ("a1 b-2 3rd", 0), ("2010年2月 10", 1), ("* * *\n***", 4), ("", 0)],
)
def test_a_run_without_a_letter_counts_once(text: str, letterless: int) -> None:
    assert count_words(pa.array([text]), ["en"], {})[0, counts.LETTERLESS_RUNS] == letterless


def test_stop_words_are_found_in_any_case_and_beside_punctuation() -> None:
    text = pa.array(['"The" (OF) and-or the'])
    assert count_words(text, ["en"], STOP_WORDS)[0, counts.STOP_WORDS_FOUND] == 3
    assert count_words(text, ["xx"], STOP_WORDS)[0, counts.STOP_WORDS_FOUND] == 0


def test_documents_in_several_languages_have_their_own_stop_words() -> None:
    texts, languages = pa.array(["und das the", "und das the", "und das the"]), ["de", "en", "xx"]
    assert count_words(texts, languages, STOP_WORDS)[:, counts.STOP_WORDS_FOUND].tolist() == [2, 1, 0]
