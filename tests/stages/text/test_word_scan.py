"""The one reading of a text, against the same definitions in plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text import word_scan
from stages.text.characters import BULLETS
from stages.text.word_scan import MAX_WORDS, Words, scan_words
from stages.text.words import word_hashes
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


def plain_counts(text: str) -> dict[int, int]:
    tokens = tokens_of(text)
    words = [token for token in tokens if is_word(token)]
    spaced = [token for token in words if token.kind == "word"]
    signs = [token for token in tokens if token.kind == "sign"]
    lines = [line for part in text.split("\n") if (line := runs_of(tokens_of(part)))]
    visible = text_of(tokens)
    return {
        word_scan.WORDS: len(words),
        word_scan.SPACED: len(spaced),
        word_scan.SPACED_CHARS: len(text_of(spaced)),
        word_scan.ALPHABETIC_WORDS: sum(map(has_letter, words)),
        word_scan.SIGNS: len(signs),
        word_scan.HASHES: visible.count("#"),
        word_scan.ELLIPSES: visible.count("…") + visible.count("..."),
        word_scan.LETTERLESS_RUNS: sum(not any(map(has_letter, run)) for run in runs_of(tokens)),
        word_scan.LINES: len(lines),
        word_scan.BULLET_LINES: sum(line[0][0].text in BULLETS for line in lines),
        word_scan.ELLIPSIS_LINES: sum(text_of(line[-1]).endswith(("...", "…")) for line in lines),
    }


def read(texts: list[str]) -> Words:
    return Words.of(scan_words(pa.array(texts, pa.string())))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(TEXTS, max_size=6),
    st.sampled_from(["", "padding that is not ASCII é " * 8, "plain padding, of bytes " * 8]),
)
def test_a_scan_agrees_with_plain_python(texts: list[str], around: str) -> None:
    # What stands around a text decides how many bytes of it are read at a time, and may decide nothing else.
    found = Words.of(scan_words(pa.array([around, *texts, around], pa.string()))[1 : len(texts) + 1])
    assert found.counts.shape == (len(texts), word_scan.COUNTS)
    for row, text in enumerate(texts):
        assert dict(enumerate(found.counts[row].tolist())) == plain_counts(text)
        start, end = found.word_starts[row], found.word_starts[row + 1]
        assert found.words[start:end].tolist() == word_hashes(text).tolist()
        before = found.before[start + row : end + row + 1].tolist()
        assert before == plain_characters_before(text)
        low, high = found.line_starts[row], found.line_starts[row + 1]
        lines = [
            line for part in text.split("\n") if (line := [token for run in runs_of(tokens_of(part)) for token in run])
        ]
        assert np.abs(found.line_chars[low:high]).tolist() == [len(text_of(line)) for line in lines]
        numbers: dict[tuple[Token, ...], int] = {}
        for line, number in zip(lines, found.lines[low:high].tolist(), strict=True):
            assert numbers.setdefault(tuple(line), number) == number
        assert len(set(numbers.values())) == len(numbers)
        assert found.rest[row] == len(text.encode())


def plain_characters_before(text: str) -> list[int]:
    before, characters = [], 0
    for token in (token for run in runs_of(tokens_of(text)) for token in run):
        if is_word(token):
            before.append(characters)
        characters += len(token.text)
    return [*before, characters]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=6), st.data())
def test_slices_and_nulls_of_a_column(texts: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    alone = pa.array([text or "" for text in texts[start:]], pa.large_string())
    column = pa.array(texts, pa.string())
    assert scan_words(column[start:]) == scan_words(alone) == scan_words(column)[start:]


@pytest.mark.parametrize("of", ["words", "lines"])
def test_of_a_long_document_the_first_words_and_lines_are_held_and_all_counted(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    piece = "the cat sat on the mat... \n" if of == "words" else "-\n"
    whole = read([piece * 50])
    monkeypatch.setattr(word_scan, "MAX_WORDS", 10)
    found = read([piece * 50])
    assert found.counts.tolist() == whole.counts.tolist()
    held = "the cat sat on the mat... \nthe cat sat on" if of == "words" else "-\n" * 10
    expected = read([held])
    assert found.words.tolist() == expected.words.tolist()
    assert found.lines.tolist() == expected.lines.tolist()
    assert found.line_chars.tolist() == expected.line_chars.tolist()
    assert found.before.tolist() == expected.before.tolist()
    assert found.rest.tolist() == [len(held)]


def test_a_document_of_many_words_has_room_for_them_all() -> None:
    found = read(["a " * 100_000, "-\n" * 100_000])
    assert np.diff(found.word_starts).tolist() == [100_000, 0]
    assert np.diff(found.line_starts).tolist() == [1, 100_000]
    assert MAX_WORDS > 100_000


@pytest.mark.parametrize("piece", ["the cat sat... ", "the 中, ", "- a\n", "x… \n", "... ", "|\n", "กขคงจฉชซ # "])
def test_counts_go_on_over_chunks_of_words(piece: str) -> None:
    # Longer than the words that are cut ahead, so breaks fall into lines, runs and words.
    times = 3_001
    once, many = (read([piece * n]).counts[0] for n in (1, times))
    for column in (word_scan.WORDS, word_scan.SIGNS, word_scan.HASHES, word_scan.ELLIPSES, word_scan.LETTERLESS_RUNS):
        assert many[column] == times * once[column]
    if piece.endswith("\n"):
        assert many[word_scan.LINES] == times
        assert many[word_scan.BULLET_LINES] == times * once[word_scan.BULLET_LINES]
        assert many[word_scan.ELLIPSIS_LINES] == times * once[word_scan.ELLIPSIS_LINES]
    else:
        assert many[word_scan.LINES] == 1


@pytest.mark.parametrize(
    ("text", "letterless"),
    [("costs $3.50 | or 2,184% --- of it", 4), ("a1 b-2 3rd", 0), ("2010年2月 10", 1), ("* * *\n***", 4), ("", 0)],
)
def test_a_run_without_a_letter_counts_once(text: str, letterless: int) -> None:
    assert read([text]).counts[0, word_scan.LETTERLESS_RUNS] == letterless
