"""The compiled kernel against the same definitions in plain Python, and what a word is, in named cases."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.text import kernel, words
from stages.text.stop_words import STOP_WORDS
from stages.text.words import count_words, measure_repetition

# Few words and many breaks, so that repetition and paragraphs happen; letters of every class.
PIECES = st.sampled_from(
    ["the ", "The", " of", "cat ", "#", "...", "…", ". ", "- ", "• x", "\n", "\n\n", " \n\t\n", "a\r\n", "中文", "学",
     "，", "「", "かな", "ไทยคำ", "ที่", "ຄົນ", "1", "٣ ", "é ", "\u0301", "𠀀", "\u00a0", "\x00", "हिन्दी ", "x" * 40]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(max_size=60))


def is_in(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return char.isalpha() and any(low <= ord(char) <= high for low, high in ranges)


def kind(char: str) -> str:
    if is_in(char, words._SINGLE_RANGES) or 0x20000 <= ord(char) < 0x40000:
        return "single"
    if is_in(char, words._JOINED_RANGES):
        return "joined"
    return "plain" if ord(char) < kernel.TABLE_SIZE and char.isalnum() else "other"


def is_letter(char: str) -> bool:
    return kind(char) == "single" or (kind(char) != "other" and char.isalpha())


def mixed(h: int) -> int:
    mask = (1 << 64) - 1
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & mask
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & mask
    return h ^ (h >> 31)


def cuts(last: str, char: str) -> bool:
    if kind(char) == "single":
        return True
    if kind(char) == "joined":
        return kind(last) != "joined" or mixed(ord(last) << 32 | ord(char)) % 4 == 0
    return kind(last) in ("single", "joined")


def split_words(line: str) -> list[str]:
    found: list[str] = []
    for run in line.split():
        word, last = "", ""
        for char in run:
            if kind(char) != "other":
                if last and cuts(last, char):
                    found.append(word)
                    word = ""
                last = char
            word += char
        found.append(word)
    return found


def python_lines(text: str) -> list[list[str]]:
    return [split_words(line) for line in text.split("\n") if line.strip()]


def python_paragraphs(text: str) -> list[list[list[str]]]:
    blocks = re.split(r"\n(?:[^\S\n]*\n)+", "\n" + text + "\n")
    return [lines for block in blocks if (lines := python_lines(block))]


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def duplicates(items: list[str]) -> list[str]:
    seen: set[str] = set()
    return [item for item in items if item in seen or seen.add(item)]  # type: ignore[func-returns-value]


def covered(text_words: list[str], positions: list[int], n: int) -> int:
    return sum(len(text_words[i]) for i in {i + k for i in positions for k in range(n)})


def python_measures(text: str) -> list[float]:
    lines = [" ".join(line) for line in python_lines(text)]
    paragraphs = ["\n".join(" ".join(line) for line in block) for block in python_paragraphs(text)]
    flat = [word for line in python_lines(text) for word in line]
    total = sum(map(len, flat))
    doubled = [duplicates(lines), duplicates(paragraphs)]
    out = [share(len(doubled[0]), len(lines)), share(len(doubled[1]), len(paragraphs))]
    out += [share(sum(len(re.sub(r"[ \n]", "", item)) for item in items), total) for items in doubled]
    for n in range(2, 11):
        grams = [tuple(flat[i : i + n]) for i in range(len(flat) - n + 1)]
        counts = Counter(grams)
        if n <= 4:
            best = max(counts.values(), default=0)
            equal = [gram for gram in counts if counts[gram] == best]  # in order of first occurrence
            top = max(equal, key=lambda gram: len("".join(gram)), default=None)
            chosen = [i for i, gram in enumerate(grams) if gram == top] if best > 1 else []
        else:
            chosen = [i for i, gram in enumerate(grams) if gram in grams[:i]]
        out.append(share(covered(flat, chosen, n), total))
    return out


def python_counts(text: str, stops: tuple[str, ...]) -> dict[int, int]:
    lines = python_lines(text)
    flat = [word for line in lines for word in line]
    spaced = [word for word in flat if not any(kind(char) in ("single", "joined") for char in word)]
    letters = r"[^\W_]"
    folded = {re.sub(rf"^(?:(?!{letters}).)+|(?:(?!{letters}).)+$", "", word, flags=re.S).lower() for word in flat}
    ends = [line[-1] for line in lines]
    return {
        kernel.WORDS: len(flat),
        kernel.SPACED: len(spaced),
        kernel.SPACED_CHARS: sum(map(len, spaced)),
        kernel.ALPHABETIC_WORDS: sum(any(is_letter(c) for c in word) for word in flat),
        kernel.HASHES: text.count("#"),
        kernel.ELLIPSES: text.count("…") + text.count("..."),
        kernel.LINES: len(lines),
        kernel.BULLET_LINES: sum(line[0][0] in words._BULLETS for line in lines),
        kernel.ELLIPSIS_LINES: sum(end.endswith(("...", "…")) for end in ends),
        kernel.STOP_WORDS_FOUND: len(folded & set(stops)),
    }


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_repetition_agrees_with_plain_python(texts: list[str]) -> None:
    measured = measure_repetition(pa.array(texts, pa.string()))
    expected = np.array([python_measures(text) for text in texts]).reshape(-1, kernel.REPETITION_MEASURES)
    np.testing.assert_allclose(measured, expected, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_counts_agree_with_plain_python(texts: list[str]) -> None:
    counts = count_words(pa.array(texts, pa.string()), ["en"] * len(texts), STOP_WORDS)
    for row, text in enumerate(texts):
        expected = python_counts(text, STOP_WORDS["en"])
        assert {column: counts[row, column] for column in expected} == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=6), st.data())
def test_slices_and_nulls_of_a_column_are_read_in_place(texts: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    whole = pa.array(texts, pa.string())
    alone = pa.array([text or "" for text in texts[start:]], pa.string())
    np.testing.assert_array_equal(measure_repetition(whole[start:]), measure_repetition(alone))
    languages = ["de"] * len(alone)
    np.testing.assert_array_equal(
        count_words(whole[start:], languages, STOP_WORDS), count_words(alone, languages, STOP_WORDS)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two,  three\tfour\u00a0five", ["one", "two,", "three", "four", "five"]),
        ("中文，字。", ["中", "文，", "字。"]),
        ("「中文」abc1文", ["「中", "文」", "abc1", "文"]),
        ("2010年 2月", ["2010", "年", "2", "月"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ"]),
        ("हिन्दी है", ["हिन्दी", "है"]),
        ("한국어 문장", ["한국어", "문장"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert split_words(text) == expected
    assert count_words(pa.array([text]), ["und"], {})[0, kernel.WORDS] == len(expected)


def test_words_of_a_script_without_spaces_do_not_depend_on_what_stands_before() -> None:
    phrase = "ประเทศไทยมีประชากรมากกว่าหกสิบล้านคน"
    alone, later = split_words(phrase), split_words("กข" + phrase)
    assert alone[1:] == later[-len(alone) + 1 :]
    assert 2 < len(phrase) / len(alone) < 8


def test_counts_go_on_where_words_are_no_longer_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_STORED_WORDS", 10)
    text = pa.array(["the cat sat on the mat\n" * 50])
    counts = count_words(text, ["en"], STOP_WORDS)[0]
    assert counts[kernel.WORDS] == 300
    assert counts[kernel.LINES] == 50
    assert counts[kernel.STORED_WORDS] == 10
    np.testing.assert_array_equal(
        measure_repetition(text), measure_repetition(pa.array(["the cat sat on the mat\nthe cat sat on"]))
    )


def test_stop_words_are_found_in_any_case_and_inside_punctuation() -> None:
    text = pa.array(['"The" (OF) and-or'])
    assert count_words(text, ["en"], STOP_WORDS)[0, kernel.STOP_WORDS_FOUND] == 2
    assert count_words(text, ["xx"], STOP_WORDS)[0, kernel.STOP_WORDS_FOUND] == 0
