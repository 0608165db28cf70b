from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.passes.exact import exact_drops_of
from pipelines.passes.keys import alive_keys, documents, is_in, range_names, range_of, split_names

UINT64 = st.integers(0, (1 << 64) - 1)


def drops_of(made: Any) -> list[tuple[int, int]]:
    drops = exact_drops_of(made.run)
    return list(zip(drops["doc_id"].tolist(), drops["witness"].tolist(), strict=True))


def test_the_survivor_of_equal_content_is_the_smallest_by_priority_and_id(made: Any) -> None:
    texts = dict(zip(*(made.judged("documents").column(name).to_pylist() for name in ("doc_id", "text")), strict=True))
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for split in split_names(made.run):
        for row in alive_keys(made.run, split, ["doc_id", "priority"]).to_pylist():
            groups[" ".join(texts[row["doc_id"]].split())].append((row["priority"], row["doc_id"]))
    expected = {(doc_id, min(group)[1]) for group in groups.values() for _, doc_id in group if doc_id != min(group)[1]}
    assert set(drops_of(made)) == expected
    assert len(expected) >= 4


def test_ranges_and_splits_change_nothing(made: Any, cut_fine: Any) -> None:
    assert drops_of(cut_fine) == drops_of(made)
    assert len(cut_fine.run.manifest("near_pairs")["units"]) > 8 > len(made.run.manifest("near_pairs")["units"])
    assert documents(cut_fine.run) == documents(made.run)


def test_without_exact_deduplication_there_are_no_ranges(bare: Any) -> None:
    assert bare.run.manifest("exact_ranges")["units"] == []
    assert drops_of(bare) == []


def test_keys_leave_out_what_the_cuts_dropped(made: Any) -> None:
    cut = {row["doc_id"] for row in made.verdicts() if row["dropped_by"] == "perplexity_v1"}
    alive = {
        row["doc_id"] for split in split_names(made.run) for row in alive_keys(made.run, split, ["doc_id"]).to_pylist()
    }
    assert cut
    assert alive == set(made.judged("keys").column("doc_id").to_pylist()) - cut
    table = alive_keys(made.run, split_names(made.run)[0], ["priority", "doc_id"])
    assert table.column_names == ["priority", "doc_id"]


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
