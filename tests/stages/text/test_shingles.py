from __future__ import annotations

import itertools
import unicodedata

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.jit import mix64
from stages.text.shingles import batch_shingles, buffer_shingles, distinct, slots_for
from tests.stages.text.plain import TEXTS, words_of

PROSE = st.lists(st.sampled_from(["the", "Cat", "sat", "on", "mat", "中国", "été"]), max_size=40).map(" ".join)


def shingle_hashes(text: str, n: int) -> np.ndarray:
    return batch_shingles(pa.array([text], pa.large_string()), n)[1]


def shingles_of(words: list[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + n]) for at in range(max(1, len(words) - n + 1))} if words else set()


def split(offsets: np.ndarray, hashes: np.ndarray) -> list[list[int]]:
    return [hashes[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.one_of(TEXTS, PROSE), min_size=2, max_size=8), st.integers(1, 6))
def test_hashes_stand_one_to_one_for_the_shingles(texts: list[str], n: int) -> None:
    name: dict[int, tuple[str, ...]] = {}
    offsets, hashes = batch_shingles(pa.array(texts), n)
    for text, got in zip(texts, split(offsets, hashes), strict=True):
        expected = shingles_of(words_of(unicodedata.normalize("NFC", text)), n)
        assert len(got) == len(expected)
        assert got == sorted(set(got))
        assert got == shingle_hashes(text, n).tolist()
        # A format character that is passed over keeps two apart that compose: not so in the words by themselves.
        for shingle in (each for each in expected if unicodedata.is_normalized("NFC", " ".join(each))):
            (value,) = shingle_hashes(" ".join(shingle), n).tolist()
            assert value in got
            assert name.setdefault(value, shingle) == shingle


@settings(deadline=None, max_examples=50)
@given(st.lists(TEXTS, min_size=1, max_size=10), st.data())
def test_cutting_a_batch_changes_nothing(texts: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(texts)))
    whole = pa.array(texts)
    expected = split(*batch_shingles(whole, 3))
    assert split(*batch_shingles(whole[:cut], 3)) + split(*batch_shingles(whole[cut:], 3)) == expected
    assert split(*batch_shingles(whole.cast(pa.large_string()), 3)) == expected


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40))
def test_malformed_utf8_is_read_within_its_bounds(raw: bytes) -> None:
    # Between two documents, so that reading past the end would meet letters.
    data = b"alpha beta" + raw + b"gamma delta"
    bounds = np.array([0, 10, 10 + len(raw), len(data)], np.int64)
    buffer = np.frombuffer(data, np.uint8)
    got = split(*buffer_shingles(buffer, bounds, 2))
    assert got[0] == shingle_hashes("alpha beta", 2).tolist()
    assert got[2] == shingle_hashes("gamma delta", 2).tolist()
    alone = buffer_shingles(np.frombuffer(raw, np.uint8), np.array([0, len(raw)], np.int64), 2)[1]
    assert got[1] == alone.tolist()
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return
    if unicodedata.is_normalized("NFC", text):
        assert got[1] == shingle_hashes(text, 2).tolist()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("The CAT sat", "the  cat,\nsat!"),
        ("co\u00adoperate now", "cooperate now"),
        ("cafe\u0301 noir", "café noir"),
        ("ΟΔΟΣ", "οδος"),
        ("我爱北京", "我 爱 北 京"),
    ],
)
def test_same_shingles(text: str, same: str) -> None:
    assert np.array_equal(shingle_hashes(text, 2), shingle_hashes(same, 2))


@pytest.mark.parametrize(
    ("text", "n", "count"),
    [
        ("", 5, 0),
        ("... !?", 5, 0),
        ("one two", 5, 1),
        ("a b c d e", 5, 1),
        ("a b c d e f", 5, 2),
        ("a a a a a a a a", 5, 1),
        ("我爱北京天安门", 5, 3),
        # Thai: words of about four letters, so that five are a shingle of some twenty.
        ("ประเทศไทยมีประชากรมากกว่าหกสิบล้านคน", 1, 5),
        ("हिन्दी भाषा", 1, 2),
    ],
)
def test_counts(text: str, n: int, count: int) -> None:
    assert len(shingle_hashes(text, n)) == count


def test_order_of_words_matters() -> None:
    assert shingle_hashes("a b", 2) != shingle_hashes("b a", 2)


def test_null_is_an_empty_document() -> None:
    offsets, hashes = batch_shingles(pa.array([None, "a b", None]), 2)
    assert offsets.tolist() == [0, 0, 1, 1]
    assert len(hashes) == 1


def test_no_documents() -> None:
    offsets, hashes = batch_shingles(pa.array([], pa.string()), 5)
    assert offsets.tolist() == [0]
    assert hashes.dtype == np.uint64
    assert len(hashes) == 0


def test_a_long_document_is_bounded() -> None:
    assert len(shingle_hashes("a b " * 500_000, 5)) == 2
    assert len(shingle_hashes("x" * 3_000_000, 5)) == 1


@pytest.mark.parametrize("words", [0, -1, 65])
def test_words_out_of_range(words: int) -> None:
    with pytest.raises(UserError, match="shingle_words"):
        shingle_hashes("a", words)


@pytest.mark.parametrize(
    ("text", "hashes"),
    [
        ("The cat sat on the mat", [10403318311136677869, 18326498945302860594]),
        ("Мёртвые души, 1842-й год", [5354324593756491000]),
        ("我爱 Python 3，你呢？", [4582595861873821191, 15444863500653613113]),
        ("हिन्दी भाषा की लिपि", [10596557435402760216]),
        ("co\u00adoperate İstanbul’s ΟΔΟΣ", [7927455234661574851]),
        ("ประเทศไทยมีประชากรมากกว่าหกสิบล้านคน", [388433412926997785]),
    ],
)
def test_hashes_are_what_they_were(text: str, hashes: list[int]) -> None:
    # Signatures on disk compare with those of a later crawl, so the hashes may never change under one stage name.
    # All but the last are what they were in fingerprint_v1.
    assert shingle_hashes(text, 5).tolist() == hashes


@numba.njit
def _count(hashes: np.ndarray, slots: np.ndarray) -> int:
    return distinct(hashes, len(hashes), slots)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, 64, 128, 1 << 63]), max_size=300))
def test_different_hashes_are_counted(hashes: list[int]) -> None:
    slots = np.full(len(slots_for(len(hashes))), 7, np.uint64)
    assert _count(np.array(hashes, np.uint64), slots) == len(set(hashes))


def test_counting_gives_up_on_hashes_that_were_made_to_meet() -> None:
    made = np.arange(5_000, dtype=np.uint64) << np.uint64(32)
    assert _count(made, slots_for(len(made))) == -1
    assert _count(mix64(made), slots_for(len(made))) == len(made)


def test_counting_takes_a_bounded_space() -> None:
    many = mix64(np.arange((1 << 20) + 1, dtype=np.uint64))
    assert slots_for(len(many)).nbytes == slots_for(1 << 40).nbytes == 32 << 20
    assert _count(many[:-1], slots_for(len(many) - 1)) == 1 << 20
    assert _count(many, slots_for(len(many))) == -1
