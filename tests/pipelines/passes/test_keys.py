from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.passes import keys as module
from pipelines.passes.keys import PIECE_BYTES, pieces, range_names, range_of, spans_of
from pipelines.tables import is_in

UINT64 = st.integers(0, (1 << 64) - 1)
KEY = np.dtype([("key", "<u8"), ("doc_id", "<i8")])


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_ranges_are_few_enough_and_small_enough(key_bytes: int, range_bytes: int) -> None:
    if key_bytes // range_bytes > 10_000:
        range_bytes = key_bytes // 10_000
    names = range_names(key_bytes, range_bytes)
    assert names == sorted(set(names))
    assert len(names) * range_bytes >= key_bytes > (len(names) - 1) * range_bytes or len(names) == 1


@given(st.lists(UINT64, max_size=20), st.integers(1, 100_000))
def test_every_hash_is_in_one_range_in_order(hashes: list[int], ranges: int) -> None:
    where = range_of(np.array(sorted(hashes), np.uint64), ranges)
    assert where.tolist() == [(value >> 32) * ranges >> 32 for value in sorted(hashes)]
    assert all(0 <= index < ranges for index in where.tolist())
    assert where.tolist() == sorted(where.tolist())


def test_ranges_are_even() -> None:
    hashes = np.random.default_rng(0).integers(0, 1 << 64, 70_000, np.uint64)
    counts = np.bincount(range_of(hashes, 7), minlength=7)
    assert counts.max() / counts.min() < 1.1


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=8), st.lists(st.integers(-5, 5), max_size=8))
def test_membership_agrees_with_sets(ids: list[int], members: list[int]) -> None:
    found = is_in(np.array(ids, np.int64), np.array(sorted(members), np.int64))
    assert found.tolist() == [one in members for one in ids]


@given(st.sets(st.integers(0, 60)))
def test_spans_name_exactly_the_ranges(indices: set[int]) -> None:
    spans = spans_of(f"{index:05d}" for index in sorted(indices))
    assert [index for begin, end in spans for index in range(begin, end)] == sorted(indices)
    # As few as can be: no two touch.
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_all_ranges_are_one_span() -> None:
    assert spans_of(range_names(10**6, 1)) == ((0, 10**6),)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 7), max_size=30), st.sets(st.integers(0, 7), min_size=1), st.booleans(), st.integers(1, 5)
)
def test_pieces_are_all_keys_of_the_wanted_ranges_in_small_elements(
    where: list[int], wanted: set[int], everywhere: bool, keys_per_piece: int
) -> None:
    keys = np.zeros(len(where), KEY)
    keys["doc_id"] = np.arange(len(where))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_BYTES", keys_per_piece * KEY.itemsize)
        found = list(pieces(keys, np.array(where, np.int64), sorted(wanted), everywhere=everywhere))
    assert all(len(data) <= keys_per_piece * KEY.itemsize for _, data in found)
    by_range: dict[int, list[int]] = {}
    for index, data in found:
        by_range.setdefault(index, []).extend(np.frombuffer(data, KEY)["doc_id"].tolist())
    expected = {index: [at for at, one in enumerate(where) if one == index] for index in sorted(wanted)}
    # A range without a key must end in a marker all the same: one split has a piece everywhere.
    assert by_range == {index: ids for index, ids in expected.items() if ids or everywhere}


def test_no_piece_is_over_what_runners_take() -> None:
    assert PIECE_BYTES < 10_000_000
