"""The one definition of a word: the kernel against plain Python, and named cases."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.jit import mix64
from stages.text import word_scan, words
from stages.text.characters import character_table
from stages.text.repetition import measure_repetition
from stages.text.shingles import batch_shingles
from stages.text.word_scan import Words, scan_words
from stages.text.words import ALPHABETIC_WORD, CHARACTERS, UNSPACED_WORD, cut_words, hash_words, word_hashes
from tests.stages.text.plain import TEXTS, tokens_of, words_of


@numba.njit
def _cut_all(data: Any, tables: Any, room: int, hashes: Any, starts: Any, ends: Any, notes: Any) -> int:
    """Cut in calls that have ``room`` for so many words each."""
    at = count = 0
    while at < len(data):
        to = slice(count, count + room)
        at, more = cut_words(
            data, at, len(data), tables[0], tables[1], tables[2], hashes[to], starts[to], ends[to], notes[to]
        )
        count += more
    return count


def tables() -> tuple[Any, Any, Any]:
    return character_table(), words.byte_terms(), words.base_powers()


def cut(data: bytes, room: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return hashes, ends, notes and starts of every word."""
    size = len(data) + room + 2
    hashes, (starts, ends, notes) = np.empty(size, np.uint64), np.empty((3, size), np.int64)
    count = _cut_all(np.frombuffer(data, np.uint8), tables(), room, hashes, starts, ends, notes)
    return hashes[:count].tolist(), ends[:count].tolist(), notes[:count].tolist(), starts[:count].tolist()


@settings(deadline=None, max_examples=200)
@given(st.lists(TEXTS, min_size=2, max_size=6))
def test_hashes_stand_one_to_one_for_words(texts: list[str]) -> None:
    names: dict[int, str] = {}
    for text in texts:
        hashes, expected = word_hashes(text).tolist(), words_of(text)
        assert len(hashes) == len(expected)
        assert all(names.setdefault(value, word) == word for value, word in zip(hashes, expected, strict=True))
    assert len(set(names.values())) == len(names)


LONG = st.lists(
    st.sampled_from(["word", "Words_9", "a" * 7, "b" * 8, "c" * 9, "d" * 63, "e" * 64, "f" * 65, "g" * 200])
    | st.sampled_from([" ", ", ", "\n", "é", "\u00ad", "\u0301", "中", "คำ", "’", "-" * 70]),
    max_size=30,
).map("".join)


def plain_hash(word: str) -> int:
    state = int(words._SEED)
    for character in word:
        state = (state * int(words._BASE) + ord(character)) % (1 << 64)
    return int(mix64(np.array([state], np.uint64))[0])


@settings(deadline=None, max_examples=400)
@given(TEXTS | LONG, st.integers(0, 70), st.integers(0, 70))
def test_words_read_a_block_at_a_time_are_the_same(text: str, before: int, behind: int) -> None:
    raw = text.encode()
    data = np.frombuffer(b"z" * before + raw + b"z" * behind, np.uint8)
    expected = [plain_hash(word) for word in words_of(text)]
    found = np.zeros(len(raw) // 2 + 2, np.uint64)
    assert _hash_once(data, before, before + len(raw), *tables(), found) == len(expected)
    assert found[: len(expected)].tolist() == expected
    hashes, (starts, ends, notes) = np.empty(len(raw) + 99, np.uint64), np.empty((3, len(raw) + 99), np.int64)
    at, count = _cut_once(data, before, before + len(raw), *tables(), hashes, starts, ends, notes)
    assert (at, hashes[:count].tolist()) == (before + len(raw), expected)
    pieces = [bytes(data[start:end]).decode() for start, end in zip(starts[:count], ends[:count], strict=True)]
    assert [words_of(piece) for piece in pieces] == [[word] for word in words_of(text)]
    assert [bool(note & ALPHABETIC_WORD) for note in notes[:count].tolist()] == [
        any(character.isalpha() for character in piece) for piece in pieces
    ]
    assert (notes[:count] & CHARACTERS).tolist() == [len(word) for word in words_of(text)]


@numba.njit
def _cut_once(data: Any, at: int, end: int, table: Any, terms: Any, powers: Any, *out: Any) -> tuple[int, int]:
    return cut_words(data, at, end, table, terms, powers, out[0], out[1], out[2], out[3])


@numba.njit
def _hash_once(data: Any, at: int, end: int, table: Any, terms: Any, powers: Any, out: Any) -> int:
    return hash_words(data, at, end, table, terms, powers, out)


@settings(deadline=None, max_examples=200)
@given(TEXTS, st.integers(2, 9))
def test_text_is_cut_in_pieces_that_leave_no_seam(text: str, room: int) -> None:
    data = text.encode()
    hashes, ends, notes, _ = cut(data, room)
    assert hashes == word_hashes(text).tolist()
    found = [token for token in tokens_of(text) if token.kind.endswith("word")]
    assert [note & CHARACTERS for note in notes] == [len(token.text) for token in found]
    assert [note & UNSPACED_WORD != 0 for note in notes] == [token.kind == "unspaced word" for token in found]
    assert [note & ALPHABETIC_WORD != 0 for note in notes] == [
        any(character.isalpha() for character in token.text) for token in found
    ]
    for end, token in zip(ends, found, strict=True):
        assert words_of(data[:end].decode())[-1] == token.text


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40), st.integers(2, 9))
def test_malformed_utf8_is_read_within_its_bounds(raw: bytes, room: int) -> None:
    expected = word_hashes(raw.decode("utf-8", "replace")).tolist()
    assert cut(raw, room)[0] == expected


@settings(deadline=None, max_examples=100)
@given(st.text(st.sampled_from("abcXYZ_019 ,.\n\t'éÀßж"), max_size=80))
def test_words_are_those_of_python_where_there_are_no_marks(text: str) -> None:
    expected = re.findall(r"\w+", text.lower())
    assert words_of(text) == expected
    assert len(word_hashes(text)) == len(expected)


@settings(deadline=None, max_examples=100)
@given(TEXTS)
def test_all_count_the_same_words(text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    column, expected = pa.array([text]), words_of(text)
    assert Words.of(scan_words(column)).counts[0, word_scan.WORDS] == len(expected)
    assert len(batch_shingles(column, 1)[1]) == len(set(expected))
    # Said twice over, it repeats every n-gram that it has.
    measures = measure_repetition(Words.of(scan_words(pa.array([f"{text}\n{text}"]))))[0]
    assert measures[4] > 0 or len(expected) < 2
    assert measures[12] > 0 or len(expected) < 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two,  three\tfour\u00a0five", ["one", "two", "three", "four", "five"]),
        ('"The" (OF) and-or', ["the", "of", "and", "or"]),
        ("Don't e-mail: it's 3.14!", ["don", "t", "e", "mail", "it", "s", "3", "14"]),
        ("snake_case's www.example.com", ["snake_case", "s", "www", "example", "com"]),
        ("| --- | *** |", []),
        ("co\u00adoperate in\u200bside", ["cooperate", "in", "side"]),
        ("ΟΔΟΣ İstanbul", ["οδοσ", "istanbul"]),
        ("中文，字。", ["中", "文", "字"]),
        ("「中文」abc1文", ["中", "文", "abc1", "文"]),
        ("2010年 2月", ["2010", "年", "2", "月"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ"]),
        ("हिन्दी है", ["हिन्दी", "है"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("བོད་ཡིག", ["བོད", "ཡིག"]),
        ("ปี๒๕๖๗ค่ะ", ["ปี", "๒๕๖๗", "ค่ะ"]),
        ("\u0301a", ["\u0301a"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected
    assert len(word_hashes(text)) == len(expected)


def test_words_of_a_script_without_spaces_do_not_depend_on_what_stands_before() -> None:
    phrase = "ประเทศไทยมีประชากรมากกว่าหกสิบล้านคน"
    alone, later = word_hashes(phrase).tolist(), word_hashes("กข" + phrase).tolist()
    assert alone[1:] == later[-len(alone) + 1 :]
    assert 2 < len(phrase) / len(alone) < 8


def test_a_long_word_is_one() -> None:
    assert len(word_hashes("x" * 3_000_000)) == 1
    assert len(cut(b"y " + b"x" * 100_000, 8)[0]) == 2


def test_hashes_are_what_they_were() -> None:
    # Signatures on disk are compared with those of a later crawl.
    assert word_hashes("The cat 中").tolist() == [10780205727782671408, 17683548313994033258, 16649431018556876345]
