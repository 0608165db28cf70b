from __future__ import annotations

from typing import Any

import datasketch
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.dedup import minhash
from stages.dedup.minhash import (
    DEFAULT_PERMUTATIONS,
    EMPTY,
    RECALL_AT_THRESHOLD,
    band_keys,
    bands_for,
    candidate_probability,
    signatures,
    text_signatures,
)
from stages.text.normal import composed
from stages.text.shingles import buffer_shingles
from stages.text.utf8 import utf8_buffers
from tests.stages.text.plain import TEXTS

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=30)


def ragged(documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0] + [len(d) for d in documents]).astype(np.int64)
    return offsets, np.array([h for d in documents for h in d], np.uint64)


def pairs_with(jaccard: float, union: int, trials: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets and hashes of 2 * trials documents; 2i and 2i + 1 have exactly this Jaccard."""
    shared = round(jaccard * union)
    half = (union - shared) // 2
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 1 << 64, (trials, union), dtype=np.uint64)
    one, other = hashes[:, : shared + half], np.delete(hashes, np.s_[shared : shared + half], axis=1)
    sizes = np.tile([one.shape[1], other.shape[1]], trials)
    return np.append(0, np.cumsum(sizes)), np.concatenate([one, other], axis=1).reshape(-1)


@settings(deadline=None, max_examples=40)
@given(st.lists(HASHES, min_size=1, max_size=6), st.data())
def test_a_signature_depends_on_its_own_set_alone(documents: list[list[int]], data: st.DataObject) -> None:
    whole = signatures(*ragged(documents), 32, 7)
    at = data.draw(st.integers(0, len(documents) - 1))
    again = data.draw(st.permutations(documents[at])) + documents[at]
    assert np.array_equal(signatures(*ragged([again]), 32, 7)[0], whole[at])


@settings(deadline=None, max_examples=40)
@given(HASHES, HASHES)
def test_the_signature_of_a_union_is_the_minimum(one: list[int], other: list[int]) -> None:
    a, b, union = signatures(*ragged([one, other, one + other]), 32, 7)
    assert np.array_equal(np.minimum(a, b), union)


@pytest.mark.parametrize("jaccard", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("union", [20, 400])
def test_estimates_err_as_theory_says_and_no_more_than_datasketch(jaccard: float, union: int) -> None:
    trials, permutations = 300, 128
    offsets, hashes = pairs_with(jaccard, union, trials, seed=3)
    ours = signatures(offsets, hashes, permutations, 5).reshape(trials, 2, permutations)
    error = (ours[:, 0] == ours[:, 1]).mean(axis=1) - jaccard
    theory = np.sqrt(jaccard * (1 - jaccard) / permutations)
    # Four standard errors of a mean, and of a standard deviation, over independent pairs.
    assert abs(error.mean()) < 4 * theory / np.sqrt(trials)
    assert error.std() == pytest.approx(theory, rel=4 / np.sqrt(2 * trials))
    peer = []
    for trial in range(0, 2 * 60, 2):
        one, other = (datasketch.MinHash(permutations, hashfunc=int) for _ in range(2))
        one.update_batch((hashes[offsets[trial] : offsets[trial + 1]] >> np.uint64(32)).tolist())
        other.update_batch((hashes[offsets[trial + 1] : offsets[trial + 2]] >> np.uint64(32)).tolist())
        peer.append(one.jaccard(other) - jaccard)
    assert error.std() < 1.5 * np.std(peer)


@pytest.mark.parametrize("jaccard", [0.5, 0.7, 0.8, 0.9])
def test_candidates_follow_the_s_curve(jaccard: float) -> None:
    trials = 2_000
    offsets, hashes = pairs_with(jaccard, 60, trials, seed=11)
    bands, rows = bands_for(0.8, DEFAULT_PERMUTATIONS)
    keys = band_keys(signatures(offsets, hashes, DEFAULT_PERMUTATIONS, 1), bands, rows).reshape(trials, 2, bands)
    rate = (keys[:, 0] == keys[:, 1]).any(axis=1).mean()
    expected = float(candidate_probability(jaccard, bands, rows))
    assert abs(rate - expected) < 4 * np.sqrt(expected * (1 - expected) / trials) + 1e-3


@settings(deadline=None, max_examples=60)
@given(st.floats(0.3, 1), st.integers(64, 512))
def test_bands_reach_the_recall_with_the_most_rows(threshold: float, permutations: int) -> None:
    bands, rows = bands_for(threshold, permutations)
    assert bands * rows <= permutations
    assert candidate_probability(threshold, bands, rows) >= RECALL_AT_THRESHOLD
    if rows < 16:
        assert candidate_probability(threshold, permutations // (rows + 1), rows + 1) < RECALL_AT_THRESHOLD


def test_the_default_bands() -> None:
    assert bands_for(0.8, DEFAULT_PERMUTATIONS) == (16, 7)
    assert candidate_probability([0.5, 0.8], 16, 7) == pytest.approx([0.118, 0.977], abs=1e-3)


@pytest.mark.parametrize(("least", "recall"), [(0.80, 0.97), (0.85, 0.99)])
def test_the_default_bands_find_as_many_pairs_as_is_promised(least: float, recall: float) -> None:
    trials, found, total = 500, 0, 0
    bands, rows = bands_for(0.8, DEFAULT_PERMUTATIONS)
    for shared in np.arange(least, 1.0, 0.02):
        offsets, hashes = pairs_with(float(shared), 100, trials, seed=round(1_000 * shared))
        keys = band_keys(signatures(offsets, hashes, DEFAULT_PERMUTATIONS, 1), bands, rows).reshape(trials, 2, bands)
        found, total = found + int((keys[:, 0] == keys[:, 1]).any(axis=1).sum()), total + trials
    assert found >= recall * total


@pytest.mark.parametrize(
    ("threshold", "permutations", "match"),
    [
        (0.0, 112, "threshold"),
        (1.1, 112, "threshold"),
        (float("nan"), 112, "threshold"),
        (0.8, 0, "permutations"),
        (0.8, 10**6, "permutations"),
        (0.01, 16, "more permutations"),
    ],
)
def test_impossible_bands(threshold: float, permutations: int, match: str) -> None:
    with pytest.raises(UserError, match=match):
        bands_for(threshold, permutations)


def test_seeds_give_other_permutations() -> None:
    one = signatures(*ragged([[1 << 40, 2 << 40, 3 << 40]]), 64, 1)
    other = signatures(*ragged([[1 << 40, 2 << 40, 3 << 40]]), 64, 2)
    assert (one != other).all()


def test_documents_without_shingles() -> None:
    assert (signatures(*ragged([[], [5 << 50], []]), 8, 1) == EMPTY).all(axis=1).tolist() == [True, False, True]
    assert signatures(*ragged([]), 8, 1).shape == (0, 8)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_keys_are_equal_where_all_rows_are(bands: int, rows: int, data: st.DataObject) -> None:
    row = st.lists(st.integers(0, 2), min_size=bands * rows + 1, max_size=bands * rows + 1)
    table = np.array(data.draw(st.lists(row, min_size=1, max_size=6)), np.uint32)
    keys = band_keys(table, bands, rows)
    parts = table[:, : bands * rows].reshape(len(table), bands, rows)
    cells = [(band, tuple(parts[at, band])) for at in range(len(table)) for band in range(bands)]
    flat = keys.reshape(-1).tolist()
    for cell, key in zip(cells, flat, strict=True):
        assert [other == key for other in flat] == [other == cell for other in cells]


def test_signatures_too_short_for_the_bands() -> None:
    with pytest.raises(ValueError, match="16 bands of 7 rows"):
        band_keys(np.zeros((2, 64), np.uint32), 16, 7)


def test_signatures_are_what_they_were() -> None:
    # Signatures on disk compare with those of a later crawl.
    hashes = [0x0123456789ABCDEF, 0xFEDCBA9876543210]
    assert signatures(*ragged([hashes]), 4, 1).tolist() == [[2853688185, 1521352191, 4271946054, 2542536995]]
    assert band_keys(np.arange(4, dtype=np.uint32)[None], 2, 2).tolist() == [[8564072446940739299, 4438901962221357358]]


@settings(deadline=None, max_examples=100)
@given(st.lists(TEXTS, max_size=6), st.integers(1, 7), st.integers(1, 130))
def test_signatures_of_text_are_those_of_its_shingles(texts: list[str], words: int, permutations: int) -> None:
    data, bounds = utf8_buffers(composed(pa.array(texts, pa.string())))
    offsets, hashes = buffer_shingles(data, bounds, words)
    found, counts = text_signatures(data, bounds, words, permutations, 3)
    assert np.array_equal(found, signatures(offsets, hashes, permutations, 3))
    assert (counts.dtype, counts.tolist()) == (np.int32, np.diff(offsets).tolist())


def test_shingles_that_were_made_to_meet_are_counted_by_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    sign = minhash._sign

    def gives_up(*arguments: Any) -> None:
        sign(*arguments)
        arguments[-1][1] = -1

    monkeypatch.setattr(minhash, "_sign", gives_up)
    data, bounds = utf8_buffers(pa.array(["a b c", "a b a b a b", "x"]))
    assert text_signatures(data, bounds, 2, 8, 1)[1].tolist() == [2, 2, 1]
