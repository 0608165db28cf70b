from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.passes.grouping import MAX_PIECES, MIN_UNIT_BYTES, MIN_UNITS, Piece, group_splits
from shards.sealed import digest_of

MB = 1 << 20
SIZES = st.lists(st.integers(0, 40 * MB) | st.integers(0, 2_000), max_size=60).map(
    lambda sizes: {f"{number:05d}": size for number, size in enumerate(sizes)}
)


@given(sizes=SIZES, shard=st.integers(1, 200 * MB))
def test_every_part_of_every_split_is_in_one_unit_in_order(sizes: dict[str, int], shard: int) -> None:
    groups = group_splits(sizes, shard)
    pieces = [piece for group in groups.values() for piece in group]
    assert list(dict.fromkeys(piece.split for piece in pieces)) == list(sizes)
    for split, mine in itertools.groupby(pieces, lambda piece: piece.split):
        found = list(mine)
        assert [piece.part for piece in found] == list(range(found[0].parts))
        assert {piece.parts for piece in found} == {len(found)}
        assert sum(piece.text_bytes for piece in found) == sizes[split]
    assert list(groups) == sorted(groups)
    assert all(groups.values())


@given(sizes=SIZES, shard=st.integers(2 * MIN_UNIT_BYTES, 200 * MB))
def test_units_are_even_and_enough(sizes: dict[str, int], shard: int) -> None:
    groups = list(group_splits(sizes, shard).values())
    unit = min(shard, max(MIN_UNIT_BYTES, sum(sizes.values()) // MIN_UNITS))
    weights = [sum(piece.text_bytes for piece in group) for group in groups]
    assert all(weight >= unit or len(group) == MAX_PIECES for weight, group in zip(weights[:-1], groups, strict=False))
    # The last piece of a unit begins below its size, and no piece is twice as large.
    assert all(weight < 3 * unit for weight in weights)


def test_a_small_run_is_cut_for_many_workers_and_a_large_one_by_shards() -> None:
    (one,) = group_splits({"00000-aaaaaaaa": 3 * MB}, 128 * MB).values()
    assert one == (Piece("00000-aaaaaaaa", 0, 1, 3 * MB),)
    assert len(group_splits({"a": 60 * MB}, 128 * MB)) == 15
    assert len(group_splits({"a": 200 * MB, "b": 200 * MB, "c": 600 * MB}, 128 * MB)) == 62
    assert len(group_splits({str(number): 200 * MB for number in range(100)}, 128 * MB)) == 100


def test_units_of_whole_splits_keep_their_names() -> None:
    groups = group_splits({"a": 1_000, "b": 1_000, "c": 500}, 2_000)
    assert list(groups) == [f"00000-{digest_of(['a', 'b'])[:8]}", f"00001-{digest_of(['c'])[:8]}"]


@pytest.mark.parametrize("count", [MAX_PIECES, MAX_PIECES + 1])
def test_an_element_names_a_bounded_number_of_files(count: int) -> None:
    groups = group_splits(dict.fromkeys(map(str, range(count)), 0), 100)
    assert [len(group) for group in groups.values()] == [MAX_PIECES, 1][: len(groups)]
