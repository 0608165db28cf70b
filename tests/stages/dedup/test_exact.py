from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.dedup.exact import DROP, EXACT_KEY, exact_drops, exact_keys, first_copies

HASH = st.tuples(st.sampled_from([0, 1, 2**64 - 1]), st.integers(0, 3))
# doc_id -> (hash, priority): a document has one of each.
DOCUMENTS = st.dictionaries(st.integers(-5, 2**62), st.tuples(HASH, st.integers(-2, 2)), max_size=40)


def table(documents: dict[int, tuple[tuple[int, int], int]]) -> np.ndarray:
    rows = [(hi, lo, priority, doc_id) for doc_id, ((hi, lo), priority) in documents.items()]
    return np.array(rows, EXACT_KEY)


def obvious(documents: dict[int, tuple[tuple[int, int], int]]) -> list[tuple[int, int]]:
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for doc_id, (key, priority) in documents.items():
        best[key] = min(best.get(key, (priority, doc_id)), (priority, doc_id))
    return sorted((d, best[key][1]) for d, (key, _) in documents.items() if best[key][1] != d)


@settings(deadline=None, max_examples=120)
@given(DOCUMENTS, st.floats(0.001, 0.99), st.data())
def test_the_obvious_survivors_in_any_order_and_chunks(
    documents: dict[int, tuple[tuple[int, int], int]], rate: float, data: st.DataObject
) -> None:
    keys = table(documents)
    order = data.draw(st.permutations(range(len(keys))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=4)))
    chunks = np.split(keys[np.array(order, np.int64)], cuts)
    drops, statistics = exact_drops(chunks, rate)
    assert drops.dtype == DROP
    assert drops.tolist() == obvious(documents)
    counts = [sum(other[0] == value[0] for other in documents.values()) for value in documents.values()]
    assert sum(count > 1 for count in counts) <= statistics.suspects <= statistics.keys == len(documents)


def test_false_positives_cost_no_document() -> None:
    rng = np.random.default_rng(1)
    keys = np.zeros(20_000, EXACT_KEY)
    keys["hash_hi"], keys["hash_lo"] = rng.integers(0, 1 << 64, (2, len(keys)), dtype=np.uint64)
    keys["doc_id"] = np.arange(len(keys))
    drops, statistics = exact_drops([keys], false_positive_rate=0.9)
    assert statistics.suspects > 1_000
    assert len(drops) == 0


def test_a_key_met_twice_is_no_duplicate_of_itself() -> None:
    keys = np.array([(1, 2, 0, 7), (1, 2, 0, 9)], EXACT_KEY)
    assert exact_drops([keys, keys])[0].tolist() == [(9, 7)]


def test_halves_count_both() -> None:
    keys = np.array([(1, 2, 0, 1), (1, 3, 0, 2), (2, 2, 0, 3)], EXACT_KEY)
    assert len(exact_drops([keys], 0.99)[0]) == 0


def test_nothing() -> None:
    for chunks in ([], [np.empty(0, EXACT_KEY)]):
        drops, statistics = exact_drops(chunks)
        assert drops.tolist() == []
        assert statistics.keys == 0


def test_keys_of_a_column() -> None:
    column = pa.array([bytes(range(16)), b"\xff" * 16, bytes(16)], pa.binary(16))
    keys = exact_keys(column[1:], np.array([3, 4], np.int64), np.array([10, 11]))
    assert keys.tolist() == [(2**64 - 1, 2**64 - 1, 3, 10), (0, 0, 4, 11)]
    assert exact_keys(column[:1], np.zeros(1, np.int64), np.zeros(1, np.int64))["hash_hi"][0] == 0x0001020304050607
    with pytest.raises(ValueError, match="1 nulls"):
        exact_keys(pa.array([None], pa.binary(16)), np.zeros(1, np.int64), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="of type binary"):
        exact_keys(pa.array([b"x"], pa.binary()), np.zeros(1, np.int64), np.zeros(1, np.int64))


def test_impossible_rate() -> None:
    with pytest.raises(UserError, match="false_positive_rate"):
        exact_drops([np.empty(0, EXACT_KEY)], 1.0)


def test_chunks_that_can_be_read_once_are_refused() -> None:
    with pytest.raises(TypeError, match="not an iterator"):
        exact_drops(iter([np.empty(0, EXACT_KEY)]))


@settings(deadline=None, max_examples=100)
@given(DOCUMENTS, st.lists(st.integers(0, 40), max_size=4), st.randoms(use_true_random=False))
def test_combining_parts_first_leaves_the_same_survivors(
    documents: dict[int, tuple[tuple[int, int], int]], cuts: list[int], random: object
) -> None:
    keys = table(documents)
    random.shuffle(order := list(range(len(keys))))  # type: ignore[attr-defined]
    witness: dict[int, int] = {}
    left = []
    for part in np.split(keys[np.array(order, np.int64)], sorted(cuts)):
        first, copies = first_copies(part)
        assert len(first) + len(copies) == len(part)
        assert len({(row["hash_hi"], row["hash_lo"]) for row in first}) == len(first)
        assert copies["doc_id"].tolist() == sorted(copies["doc_id"].tolist())
        witness |= dict(copies.tolist())
        left.append(first)
    drops, _ = exact_drops(left)
    beyond = dict(drops.tolist())
    found = beyond | {document: beyond.get(stands, stands) for document, stands in witness.items()}
    assert sorted(found.items()) == obvious(documents)


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_a_hash_that_all_documents_have_is_one_key(count: int) -> None:
    keys = np.zeros(count, EXACT_KEY)
    keys["doc_id"] = np.arange(count)
    first, copies = first_copies(keys)
    assert first["doc_id"].tolist() == [0]
    assert set(copies["witness"].tolist()) == {0}
    assert len(copies) == count - 1
