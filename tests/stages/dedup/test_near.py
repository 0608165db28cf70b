from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dedup.components import components
from stages.dedup.near import (
    BAND_KEY,
    LINK,
    PAIR,
    REMOVAL,
    ShingleSets,
    distinct_links,
    jaccard_of_pairs,
    linked,
    near_keys,
    survivors,
)
from tests.stages.dedup.slow import Document, Documents, buckets, components_of, corpus, sets_of, slow, steps

# Keys of three bands, never the same in two; sets from which every Jaccard can come.
KEYS = st.tuples(*[st.sampled_from([8 * band, 8 * band + 1, 2**64 - 1 - band]) for band in range(3)])
SHINGLES = st.one_of(
    st.frozensets(st.integers(0, 12).map(lambda x: x << 60 | x), min_size=1, max_size=12),
    # One set and most of it: near-duplicates.
    st.sampled_from([frozenset(range(100, 100 + size)) for size in (16, 17, 18, 19, 20)]),
)
DOCUMENTS = st.dictionaries(
    st.integers(-3, 2**62), st.builds(Document, st.integers(-1, 1), KEYS, SHINGLES), max_size=25
)


def keys_of(documents: Documents, order: list[int]) -> np.ndarray:
    sets = sets_of(documents, order)
    return near_keys(sets.keys, sets.doc_id, np.diff(sets.offsets))


def check(documents: Documents, order: list[int], threshold: float, compared_per_key: int) -> None:
    expected = slow(documents, threshold, compared_per_key)
    found = survivors(sets_of(documents, order), threshold, compared_per_key)
    assert found.removals.dtype == REMOVAL
    assert found.removals["doc_id"].tolist() == sorted(expected.removed)
    assert {d: (w, j) for d, w, j in found.removals.tolist()} == expected.removed
    assert dict(zip(order, found.cluster.tolist(), strict=True)) == expected.cluster
    assert {name for name, met in zip(order, found.limited.tolist(), strict=True) if met} == expected.limited
    assert not set(found.removals["witness"]) & set(found.removals["doc_id"])


@settings(deadline=None, max_examples=150)
@given(DOCUMENTS, st.integers(1, 4), st.sampled_from([0.5, 0.8, 0.9474, 1.0]), st.data())
def test_survivors_are_those_of_the_slow_definition_in_any_order(
    documents: Documents, compared_per_key: int, threshold: float, data: st.DataObject
) -> None:
    check(documents, data.draw(st.permutations(sorted(documents))), threshold, compared_per_key)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 60), st.sampled_from([1, 2, 16]), st.sampled_from([0.7, 0.8]))
def test_survivors_of_real_signatures_are_those_of_the_slow_definition(
    seed: int, count: int, compared_per_key: int, threshold: float
) -> None:
    documents = corpus(seed, count, threshold)
    order = np.random.default_rng(seed).permutation(sorted(documents)).tolist()
    check(documents, order, threshold, compared_per_key)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 50), st.sampled_from([1, 16]))
def test_components_of_links_may_be_taken_apart(seed: int, count: int, compared_per_key: int) -> None:
    """What near deduplication does with a component depends on no other, so any worker may have any of them."""
    documents = corpus(seed, count)
    _, links = linked([keys_of(documents, sorted(documents))], 0.8)
    label = components_of(sorted(documents), links.tolist())
    expected = slow(documents, 0.8, compared_per_key)
    removed, limited = {}, set()
    for root in set(label.values()):
        part = {name: one for name, one in documents.items() if label[name] == root}
        found = slow(part, 0.8, compared_per_key)
        removed |= found.removed
        limited |= found.limited
    assert (removed, limited) == (expected.removed, expected.limited)


@settings(deadline=None, max_examples=150)
@given(DOCUMENTS, st.sampled_from([0.5, 0.8, 1.0]), st.data())
def test_links_have_the_components_of_the_buckets(documents: Documents, threshold: float, data: st.DataObject) -> None:
    order = data.draw(st.permutations(sorted(documents)))
    keys = keys_of(documents, order) if documents else np.empty(0, BAND_KEY)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=4)))
    _, links = linked([keys], threshold)
    pairs = [pair for part in buckets(documents, threshold) for pair in itertools.combinations(part, 2)]
    expected = components_of(sorted(documents), pairs)
    assert components_of(sorted(documents), links.tolist()) == expected
    assert links.tolist() == sorted(set(links.tolist()))
    assert all(a < b for a, b in links.tolist())
    # In parts first, then what stands for each of them: as splits and ranges do it.
    merged, more = [], []
    for part in np.split(keys, cuts):
        stands, local = linked([part], threshold)
        merged.append(stands)
        more += local.tolist()
    again, between = linked(merged, threshold)
    assert components_of(sorted(documents), [*more, *between.tolist()]) == expected
    whole, _ = linked([keys], threshold)
    assert sorted(again.tolist()) == sorted(whole.tolist())
    assert whole.tolist() == linked([keys[::-1]], threshold)[0].tolist()


def test_a_bucket_is_cut_where_sizes_alone_say_that_no_pair_reaches_the_threshold() -> None:
    sizes = np.array([80, 100, 125, 157, 1000])
    keys = near_keys(np.zeros((5, 1), np.uint64), np.arange(5), sizes)
    merged, links = linked([keys], 0.8)
    # 125 / 157 is 0.796.
    assert links.tolist() == [(0, 1), (0, 2)]
    assert merged.tolist() == [(0, 0, 80, 125), (0, 3, 157, 157), (0, 4, 1000, 1000)]
    # 0.79995 is 0.8, as scores are rounded.
    assert steps(15_999 / 20_000) == 8_000
    keys = near_keys(np.zeros((2, 1), np.uint64), np.arange(2), np.array([15_999, 20_000]))
    assert len(linked([keys], 0.8)[1]) == 1


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_a_bucket_of_all_documents_is_one_key_and_a_link_for_each(count: int) -> None:
    keys = near_keys(np.zeros((count, 4), np.uint64), np.arange(count), np.full(count, 50))
    merged, links = linked([keys], 0.8)
    assert len(merged) == 1
    assert len(links) == count - 1


@pytest.mark.parametrize("kind", ["equal", "near", "template"])
def test_comparisons_grow_as_documents_do(kind: str) -> None:
    """Documents that all share their buckets: equal ones, near ones, and pages of one template, which are all kept."""
    rng = np.random.default_rng(0)
    counts = []
    for count in (1_000, 10_000):
        base = np.arange(64, dtype=np.uint64)
        rows = np.tile(base, (count, 1))
        changed = {"equal": 0, "near": 3, "template": 32}[kind]
        if changed:
            rows[:, -changed:] = rng.integers(1 << 32, 1 << 64, (count, changed), dtype=np.uint64)
        rows.sort(axis=1)
        keys = np.zeros((count, 16), np.uint64) + np.arange(16, dtype=np.uint64)
        found = survivors(of_rows(keys, rows), 0.8, 16)
        assert len(found.removals) == (0 if kind == "template" else count - 1)
        assert found.limited.sum() == (count - 17 if kind == "template" else 0)
        counts.append(found.comparisons)
    assert counts[1] <= 10.2 * counts[0] <= 10.2 * 16 * 1_000


def of_rows(keys: np.ndarray, rows: np.ndarray) -> ShingleSets:
    count, size = rows.shape
    return ShingleSets(np.arange(count), np.zeros(count, np.int64), keys, np.arange(count + 1) * size, rows.reshape(-1))


def test_no_keys() -> None:
    for chunks in ([], [np.empty(0, BAND_KEY)]):
        merged, links = linked(chunks, 0.8)
        assert (merged.dtype, links.dtype) == (BAND_KEY, LINK)
        assert len(merged) == len(links) == 0
    assert near_keys(np.empty((0, 16), np.uint64), np.empty(0, np.int64), np.empty(0, np.int64)).shape == (0,)
    found = survivors(sets_of({}, []), 0.8, 16)
    assert len(found.removals) == len(found.cluster) == len(found.limited) == found.comparisons == 0


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3))))
def test_distinct_links(pairs: list[tuple[int, int]]) -> None:
    found = distinct_links(np.array(pairs, LINK))
    assert found.tolist() == sorted({pair for pair in pairs if pair[0] != pair[1]})


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


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(0, 400), st.integers(0, 400))
def test_a_comparison_that_ends_early_removes_the_same(seed: int, shared: int, one: int, other: int) -> None:
    words = np.random.default_rng(seed).choice(1 << 62, shared + one + other, replace=False).tolist()
    first, second = frozenset(words[: shared + one]), frozenset(words[:shared] + words[shared + one :])
    documents = {1: Document(0, (5,), first), 2: Document(0, (5,), second)}
    for threshold in (0.5, 0.8, round(shared / (shared + one + other), 4) or 0.1):
        check(documents, [2, 1], threshold, 1)


def test_a_document_that_is_not_there() -> None:
    pairs = np.array([(1, 9)], PAIR)
    with pytest.raises(ValueError, match="such as 9"):
        jaccard_of_pairs(pairs, np.array([1, 2]), *ragged([frozenset(), frozenset()]))


def test_a_chain_keeps_every_second_document() -> None:
    # Each of 100 shares 90 of its 100 shingles with the next: J = 0.82, and 0.67 with the one behind that.
    documents = {n: Document(0, (7,), frozenset(range(10 * n, 10 * n + 100))) for n in range(100)}
    found = survivors(sets_of(documents, list(range(100))), 0.8, 100)
    assert found.removals["doc_id"].tolist() == list(range(1, 100, 2))
    assert found.removals["witness"].tolist() == list(range(0, 99, 2))
    # A removed document is of one cluster with the kept ones before it that it is close to.
    assert found.cluster.tolist() == [n // 2 * 2 for n in range(100)]


def test_the_document_of_better_priority_stays() -> None:
    shingles = frozenset(range(20))
    documents = {1: Document(5, (7,), shingles), 2: Document(0, (7,), shingles)}
    assert survivors(sets_of(documents, [1, 2]), 0.8, 16).removals.tolist() == [(1, 2, 1.0)]


def test_the_first_kept_of_a_bucket_are_compared_and_no_others() -> None:
    distinct = {n: Document(0, (7,), frozenset(range(100 * n, 100 * n + 50))) for n in range(3)}
    copy = Document(0, (7,), distinct[2].shingles)
    for compared, removed in ((2, []), (3, [(9, 2, 1.0)])):
        found = survivors(sets_of({**distinct, 9: copy}, [0, 1, 2, 9]), 0.8, compared)
        assert found.removals.tolist() == removed
        assert found.limited.tolist() == [False, False, False, compared == 2]
    # What shares another bucket with it is compared all the same.
    apart = {n: one._replace(keys=(7, 100 + n)) for n, one in distinct.items()}
    found = survivors(sets_of({**apart, 9: copy._replace(keys=(7, 102))}, [0, 1, 2, 9]), 0.8, 1)
    assert found.removals.tolist() == [(9, 2, 1.0)]


def test_documents_without_shingles_stay() -> None:
    documents = {n: Document(0, (7,), frozenset()) for n in range(3)}
    assert len(survivors(sets_of(documents, [0, 1, 2]), 0.8, 16).removals) == 0


def test_links_of_a_family_are_one_component() -> None:
    documents = {n: Document(0, (n // 2, 100 + (n + 1) // 2), frozenset(range(20))) for n in range(50)}
    _, links = linked([keys_of(documents, list(range(50)))], 0.8)
    _, roots = components(np.ascontiguousarray(links["a"]), np.ascontiguousarray(links["b"]))
    assert set(roots.tolist()) == {0}
