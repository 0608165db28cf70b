from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dedup.minhash import band_keys, bands_for, signatures
from stages.dedup.near import (
    BAND_KEY,
    PAIR,
    REMOVAL,
    candidate_pairs,
    greedy_survivors,
    jaccard_of_pairs,
    near_keys,
)

# doc_id -> (priority, key of each of three bands)
KEYS = st.tuples(*[st.sampled_from([0, 1, 2**64 - 1])] * 3)
DOCUMENTS = st.dictionaries(st.integers(-3, 2**62), st.tuples(st.integers(-1, 1), KEYS), max_size=25)
Documents = dict[int, tuple[int, tuple[int, int, int]]]


def table(documents: Documents) -> np.ndarray:
    rows = [(band, key, p, d) for d, (p, keys) in documents.items() for band, key in enumerate(keys)]
    return np.array(rows, BAND_KEY)


def obvious_pairs(documents: Documents, all_pairs_up_to: int, star: int) -> list[tuple[int, int]]:
    pairs = set()
    for band, key in {(band, keys[band]) for _, keys in documents.values() for band in range(3)}:
        bucket = sorted((p, d) for d, (p, keys) in documents.items() if keys[band] == key)
        width = len(bucket) if len(bucket) <= all_pairs_up_to else star
        pairs |= {(a, b) for at, (_, a) in enumerate(bucket[:width]) for _, b in bucket[at + 1 :]}
    return sorted(pairs)


@settings(deadline=None, max_examples=100)
@given(DOCUMENTS, st.integers(0, 8), st.integers(1, 4), st.data())
def test_the_obvious_pairs_in_any_order_and_chunks(
    documents: Documents, all_pairs_up_to: int, star: int, data: st.DataObject
) -> None:
    keys = table(documents)
    order = data.draw(st.permutations(range(len(keys))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=4)))
    chunks = np.split(keys[np.array(order, np.int64)], cuts)
    pairs = candidate_pairs(chunks, all_pairs_up_to, star)
    assert pairs.dtype == PAIR
    assert pairs.tolist() == obvious_pairs(documents, all_pairs_up_to, star)


def test_a_big_bucket_is_bounded() -> None:
    documents = np.arange(50_000)
    keys = near_keys(np.zeros((len(documents), 4), np.uint64), np.zeros(len(documents), np.int32), documents)
    pairs = candidate_pairs([keys])
    assert len(pairs) <= 16 * len(documents)
    assert pairs["a"].max() < 16
    assert set(pairs["b"]) == set(range(1, 50_000))


def test_keys_met_twice_change_nothing() -> None:
    keys = near_keys(np.zeros((40, 2), np.uint64), np.zeros(40, np.int32), np.arange(40))
    assert np.array_equal(candidate_pairs([keys, keys[:7]]), candidate_pairs([keys]))


def test_bands_do_not_meet() -> None:
    keys = np.array([(0, 5, 0, 1), (1, 5, 0, 2), (65535, 5, 0, 3)], BAND_KEY)
    assert len(candidate_pairs([keys])) == 0


def test_no_keys() -> None:
    assert candidate_pairs([]).tolist() == []
    assert near_keys(np.empty((0, 16), np.uint64), np.empty(0, np.int32), np.empty(0, np.int64)).shape == (0,)


SETS = st.lists(st.frozensets(st.integers(0, 12).map(lambda x: x << 60 | x), max_size=12), min_size=1, max_size=8)


def ragged(sets: list[frozenset[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0] + [len(s) for s in sets])
    return offsets, np.array([h for s in sets for h in sorted(s)], np.uint64)


@settings(deadline=None, max_examples=100)
@given(SETS, st.data())
def test_jaccard_is_that_of_python_sets(sets: list[frozenset[int]], data: st.DataObject) -> None:
    ids = sorted(data.draw(st.sets(st.integers(-5, 2**62), min_size=len(sets), max_size=len(sets))))
    at = list(itertools.product(range(len(sets)), repeat=2))
    pairs = np.array([(ids[a], ids[b]) for a, b in at], PAIR)
    got = jaccard_of_pairs(pairs, np.array(ids), *ragged(sets))
    assert got.tolist() == [len(sets[a] & sets[b]) / max(1, len(sets[a] | sets[b])) for a, b in at]


def test_a_document_that_is_not_there() -> None:
    pairs = np.array([(1, 9)], PAIR)
    with pytest.raises(ValueError, match="such as 9"):
        jaccard_of_pairs(pairs, np.array([1, 2]), *ragged([frozenset(), frozenset()]))
    with pytest.raises(ValueError, match="unknown"):
        greedy_survivors(pairs, np.ones(1), (np.array([1, 2]), np.zeros(2, np.int32)), 0.8)


# Pairs of ten documents with a Jaccard each, some near the threshold and its rounding.
PRIORITIES = st.lists(st.integers(-1, 1), min_size=10, max_size=10)
SCORES = st.sampled_from([0.0, 0.5, 0.7999, 0.79994, 0.79996, 0.8, 0.9, 0.90001, 1.0])
EDGES = st.dictionaries(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] < e[1]), SCORES)


def obvious_removals(
    edges: dict[tuple[int, int], float], priorities: list[int], threshold: float
) -> list[tuple[int, int, float]]:
    jaccard = {}
    for (a, b), value in edges.items():
        jaccard[a, b] = jaccard[b, a] = round(value, 4)
    kept: list[int] = []
    removed = []
    for document in sorted(range(10), key=lambda d: (priorities[d], d)):
        near = [(-jaccard[document, k], priorities[k], k) for k in kept if jaccard.get((document, k), -1) >= threshold]
        if near:
            removed.append((document, min(near)[2], -min(near)[0]))
        else:
            kept.append(document)
    return sorted(removed)


@settings(deadline=None, max_examples=150)
@given(EDGES, PRIORITIES, st.randoms(use_true_random=False))
def test_the_obvious_survivors_in_any_order(
    edges: dict[tuple[int, int], float], priorities: list[int], random: object
) -> None:
    items = [(e if random.random() < 0.5 else e[::-1], j) for e, j in edges.items()]  # type: ignore[attr-defined]
    random.shuffle(items)  # type: ignore[attr-defined]
    pairs = np.array([pair for pair, _ in items], PAIR)
    jaccard = np.array([j for _, j in items], np.float64)
    removals = greedy_survivors(pairs, jaccard, (np.arange(10), np.array(priorities, np.int32)), 0.8)
    assert removals.dtype == REMOVAL
    assert removals.tolist() == obvious_removals(edges, priorities, 0.8)
    assert not set(removals["witness"]) & set(removals["doc_id"])
    assert (removals["jaccard"] >= 0.8).all()


def test_a_chain_keeps_every_second_document() -> None:
    ids = np.arange(100)
    pairs = np.array(list(itertools.pairwise(ids.tolist())), PAIR)
    removals = greedy_survivors(pairs, np.full(99, 0.85), (ids, np.zeros(100, np.int32)), 0.8)
    assert removals["doc_id"].tolist() == list(range(1, 100, 2))
    assert removals["witness"].tolist() == list(range(0, 99, 2))


def test_the_source_of_better_priority_stays() -> None:
    removals = greedy_survivors(
        np.array([(1, 2)], PAIR), np.ones(1), (np.array([1, 2]), np.array([5, 0], np.int32)), 0.8
    )
    assert removals.tolist() == [(1, 2, 1.0)]


def test_a_document_is_no_duplicate_of_itself() -> None:
    pairs = np.array([(1, 1)], PAIR)
    assert len(greedy_survivors(pairs, np.ones(1), (np.array([1]), np.zeros(1, np.int32)), 0.8)) == 0


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.data())
def test_from_shingles_to_survivors_in_any_chunks(seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 1 << 64, (6, 40), dtype=np.uint64)
    sets = []
    for _ in range(30):
        document = base[rng.integers(6)].copy()
        edits = rng.integers(0, 12)
        document[rng.choice(40, edits, replace=False)] = rng.integers(0, 1 << 64, edits, dtype=np.uint64)
        sets.append(frozenset(document.tolist()))
    offsets, hashes = ragged(sets)
    ids, priority = np.arange(30) * 7, rng.integers(0, 2, 30).astype(np.int32)
    keys = near_keys(band_keys(signatures(offsets, hashes, 112, 1), *bands_for(0.8, 112)), priority, ids)
    order = np.array(data.draw(st.permutations(range(30))))
    results = []
    for chunks in ([keys], np.split(keys.reshape(30, -1)[order].reshape(-1), [13, 200])):
        pairs = candidate_pairs(chunks)
        jaccard = jaccard_of_pairs(pairs, ids, offsets, hashes)
        results.append(greedy_survivors(pairs, jaccard, (ids, priority), 0.8).tolist())
    assert results[0] == results[1]
    for document, witness, jaccard in results[0]:
        a, b = sets[document // 7], sets[witness // 7]
        assert jaccard == round(len(a & b) / len(a | b), 4) >= 0.8
