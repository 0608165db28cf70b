"""The kernel that measures repetition, against the same definitions in plain Python."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text import repetition, word_scan
from stages.text.repetition import MEASURES
from stages.text.word_scan import Words, scan_words
from tests.stages.text.plain import TEXTS, Token, tokens_of

Line = tuple[Token, ...]


def measure_repetition(text: pa.Array) -> npt.NDArray[np.float64]:
    return repetition.measure_repetition(Words.of(scan_words(text)))


def lines_of(text: str) -> list[Line]:
    lines = (tuple(token for token in tokens_of(part) if token.kind != "space") for part in text.split("\n"))
    return [line for line in lines if line]


def paragraphs_of(text: str) -> list[tuple[Line, ...]]:
    blank = "".join({chr(point) for point in range(0x3001) if chr(point).isspace()} - {"\n"}) + "\u00ad\u200d"
    blocks = re.split(rf"\n(?:[{blank}]*\n)+", "\n" + text + "\n")
    return [tuple(lines) for block in blocks if (lines := lines_of(block))]


def characters(line: Line) -> int:
    return sum(len(token.text) for token in line)


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def duplicates(items: Sequence[Hashable]) -> list[int]:
    return [at for at, item in enumerate(items) if item in items[:at]]


def words_with_signs(text: str) -> tuple[list[str], list[int]]:
    """Return the words, and the characters of each with the signs behind it."""
    words: list[str] = []
    sizes: list[int] = []
    for token in (token for line in lines_of(text) for token in line):
        if token.kind != "sign":
            words.append(token.text)
            sizes.append(0)
        if sizes:
            sizes[-1] += len(token.text)
    return words, sizes


def plain_measures(text: str) -> list[float]:
    lines, paragraphs = lines_of(text), paragraphs_of(text)
    line_sizes = [characters(line) for line in lines]
    paragraph_sizes = [sum(map(characters, paragraph)) for paragraph in paragraphs]
    total = sum(line_sizes)
    doubled, doubled_paragraphs = duplicates(lines), duplicates(paragraphs)
    out = [share(len(doubled), len(lines)), share(len(doubled_paragraphs), len(paragraphs))]
    out += [share(sum(line_sizes[at] for at in doubled), total)]
    out += [share(sum(paragraph_sizes[at] for at in doubled_paragraphs), total)]
    words, sizes = words_with_signs(text)
    for n in range(2, 11):
        grams = [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
        chosen = _most_common(grams, sizes, n) if n <= 4 else duplicates(grams)
        covered = {at + k for at in chosen for k in range(n)}
        out.append(share(sum(sizes[at] for at in covered), total))
    return out


def _most_common(grams: list[tuple[str, ...]], sizes: list[int], n: int) -> list[int]:
    counts = Counter(grams)
    best = max(counts.values(), default=0)
    if best < 2:
        return []
    # Of equals the longest where it first occurs, of those the first.
    first = [at for at, gram in enumerate(grams) if counts[gram] == best and gram not in grams[:at]]
    top = grams[max(first, key=lambda at: sum(sizes[at : at + n]))]
    return [at for at, gram in enumerate(grams) if gram == top]


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_repetition_agrees_with_plain_python(texts: list[str]) -> None:
    measured = measure_repetition(pa.array(texts, pa.string()))
    expected = np.array([plain_measures(text) for text in texts]).reshape(-1, MEASURES)
    np.testing.assert_allclose(measured, expected, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=6), st.data())
def test_slices_and_nulls_of_a_column(texts: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    alone = pa.array([text or "" for text in texts[start:]], pa.large_string())
    found = measure_repetition(pa.array(texts, pa.string())[start:])
    np.testing.assert_array_equal(found, measure_repetition(alone))


@pytest.mark.parametrize(
    ("text", "measured"),
    [
        ("the cat sat on the mat\n" * 50, "the cat sat on the mat\nthe cat sat on"),
        ("-\n" * 50, "-\n" * 10),
        ("one |\n" + "-\n" * 9 + "one |\n", "one |\n" + "-\n" * 9),
        ("我爱北京天安门我爱北京天安门", "我爱北京天安门我爱北"),
    ],
)
def test_of_a_long_document_the_first_words_and_lines_are_measured(
    monkeypatch: pytest.MonkeyPatch, text: str, measured: str
) -> None:
    expected = measure_repetition(pa.array([measured]))
    monkeypatch.setattr(word_scan, "MAX_WORDS", 10)
    np.testing.assert_array_equal(measure_repetition(pa.array([text])), expected)


def test_a_line_is_the_same_in_another_case_and_with_other_space() -> None:
    text = "Read more: here\nREAD  more : here\nread more, here\n"
    assert measure_repetition(pa.array([text]))[0, 0] == pytest.approx(1 / 3)
