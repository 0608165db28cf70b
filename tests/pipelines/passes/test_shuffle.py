from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.passes.shuffle import (
    MIN_SPLIT_GROUPS,
    SplitGroups,
    blocks_for,
    dealt,
    names_of,
    places_of,
    range_of,
    rows_of,
    shares,
)
from pipelines.recipe import Recipe, parse_recipe
from shards.store import Store
from tests.pipelines.support import plan_of

UINT64 = st.integers(0, (1 << 64) - 1)
KEY = np.dtype([("key", "<u8"), ("doc_id", "<i8")])


def recipe() -> Recipe:
    return parse_recipe({"sources": [{"glob": "*"}], "split_bytes": 1_000_000}, "t")


@given(st.integers(0, 10**14), st.integers(16, 1 << 20))
def test_there_is_a_piece_for_each_so_many_bytes(nbytes: int, piece_bytes: int) -> None:
    count = shares(nbytes, piece_bytes)
    pieces = -(-nbytes // piece_bytes)
    assert (count - 1) ** 2 < max(1, pieces) <= count**2


@given(st.lists(UINT64, max_size=20), st.integers(1, 100_000))
def test_every_hash_is_in_one_range_in_order(hashes: list[int], ranges: int) -> None:
    where = range_of(np.array(sorted(hashes), np.uint64), ranges)
    assert where.tolist() == [(value >> 32) * ranges >> 32 for value in sorted(hashes)]
    assert all(0 <= index < ranges for index in where.tolist())


@given(st.lists(UINT64, max_size=20), st.integers(1, 5_000), st.integers(1, 5_000))
def test_finer_ranges_lie_inside_coarser_ones(hashes: list[int], ranges: int, parts: int) -> None:
    values = np.array(hashes, np.uint64)
    assert (range_of(values, ranges * parts) // parts).tolist() == range_of(values, ranges).tolist()


def test_ranges_are_even() -> None:
    hashes = np.random.default_rng(0).integers(0, 1 << 64, 70_000, np.uint64)
    counts = np.bincount(range_of(hashes, 7), minlength=7)
    assert counts.max() / counts.min() < 1.1


@pytest.mark.parametrize(("splits", "per_split", "piece_bytes"), [(1, 1, 1 << 20), (50, 2, 16), (700, 2, 1 << 20)])
def test_every_split_is_in_one_group_of_consecutive_ones(splits: int, per_split: int, piece_bytes: int) -> None:
    plan = plan_of(splits * per_split, recipe(), per_split=per_split)
    found = SplitGroups.of(plan, piece_bytes)
    assert [name for group in found.groups for name in group.splits] == plan.splits.names
    assert len(found.groups) == min(splits, MIN_SPLIT_GROUPS)
    sizes = [len(group.splits) for group in found.groups]
    assert max(sizes) - min(sizes) <= 1
    assert found.names == names_of(len(found.groups))
    # Documents of any source are found in their group, and in their split in it.
    sources = np.arange(splits * per_split)
    groups = places_of(sources << 32 | 7, found.first_sources)
    for source, at in enumerate(groups.tolist()):
        group = found.groups[at]
        split = group.splits[int(places_of(np.array([source << 32]), group.first_sources)[0])]
        assert split == plan.split_of(source)


def test_more_bytes_are_more_groups() -> None:
    plan = plan_of(700, recipe())
    # 700 MB are 350,000 documents, 140 MB of rows: in pieces of 1 kB, the square root of 140,000 groups.
    assert len(SplitGroups.of(plan, 1_000).groups) == 375


def test_groups_travel_as_their_digest() -> None:
    found = SplitGroups.of(plan_of(700, recipe()), 1 << 20)
    data = pickle.dumps(found)
    assert len(data) < 200
    assert pickle.loads(data) == SplitGroups(found.digest)
    assert SplitGroups.of(plan_of(699, recipe()), 1 << 20).digest != found.digest


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(UINT64, max_size=30), max_size=5), st.integers(1, 4), st.integers(16, 200))
def test_a_shuffle_gives_every_row_to_one_range_of_one_unit(
    tmp_path_factory: pytest.TempPathFactory, hashes: list[list[int]], units: int, range_bytes: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    entries = []
    for number, values in enumerate(hashes):
        rows = np.zeros(len(values), KEY)
        rows["key"], rows["doc_id"] = np.array(values, np.uint64), np.arange(len(values)) + 1_000 * number
        with blocks_for(store, rows=units) as (blocks,):
            blocks.add(rows, range_of(rows["key"], units))
            entries.append(blocks.publish(store, "pass/rows", f"{number:05d}"))
    seen: dict[int, int] = {}
    for unit in range(units):
        whole = rows_of(store, entries, unit, KEY)
        with dealt(store, entries, unit, units, KEY, range_bytes) as parts:
            keys_before: set[int] = set()
            for rows in parts:
                keys = set(rows["key"].tolist())
                assert not keys & keys_before
                keys_before |= keys
                seen |= {row["doc_id"]: row["key"] for row in rows}
        assert sorted(keys_before) == sorted(set(whole["key"].tolist()))
    assert seen == {at + 1_000 * number: key for number, values in enumerate(hashes) for at, key in enumerate(values)}


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_what_a_unit_holds_in_memory_does_not_grow_with_its_share(tmp_path: Path, count: int) -> None:
    store, rows = Store(tmp_path), np.zeros(count, KEY)
    rows["key"] = np.random.default_rng(0).integers(0, 1 << 64, count, np.uint64)
    with blocks_for(store, rows=1) as (blocks,):
        blocks.add(rows, range_of(rows["key"], 1))
        entry = blocks.publish(store, "pass/rows", "00000")
    with dealt(store, [entry], 0, 1, KEY, 32_000) as parts:
        sizes = [part.nbytes for part in parts]
    assert sum(sizes) == rows.nbytes
    assert max(sizes) < 1.2 * 32_000
    assert not list(tmp_path.glob(".scratch/*"))
