from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from pipelines.passes.blocks import Blocks, read_block
from pipelines.passes.near import CLUSTER, add_sets, component_range, set_row, sets_in
from pipelines.passes.shuffle import rows_of
from shards.store import Store
from stages.dedup.near import REMOVAL

THRESHOLD = 0.8


def removed_of(made: Any) -> dict[int, tuple[int, float]]:
    files = list(made.run.files("near", "removed").values())
    groups = made.passes["near"].splits.groups
    rows = [row for group in groups for row in rows_of(made.run.store, files, int(group.name), REMOVAL).tolist()]
    assert len({row[0] for row in rows}) == len(rows)
    return {doc_id: (witness, jaccard) for doc_id, witness, jaccard in rows}


def clusters_of(made: Any) -> dict[int, bytes]:
    files = list(made.run.files("near", "clusters").values())
    groups = made.passes["near"].splits.groups
    rows = np.concatenate([rows_of(made.run.store, files, int(group.name), CLUSTER) for group in groups])
    return {int(row["doc_id"]): bytes(row["cluster"]) for row in rows}


def shingles(text: str) -> set[tuple[str, ...]]:
    """The slow way: sets of five lower-case words."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


def jaccard(one: set[Any], other: set[Any]) -> float:
    return round(len(one & other) / len(one | other), 4)


@pytest.fixture(scope="module")
def sets(made: Any) -> dict[int, set[Any]]:
    """Shingle sets of what is alive after exact deduplication."""
    alive = {row["doc_id"] for row in made.verdicts() if row["dropped_by"] in (None, "near_dedup_v1")}
    rows = made.judged("documents").select(["doc_id", "text"]).to_pylist()
    return {row["doc_id"]: shingles(row["text"]) for row in rows if row["doc_id"] in alive}


def test_every_removal_is_verified_against_a_witness_that_is_kept_in_the_end(
    made: Any, sets: dict[int, set[Any]]
) -> None:
    kept = {row["doc_id"] for row in made.verdicts() if row["dropped_by"] is None}
    removed = removed_of(made)
    assert len(removed) >= 6
    for doc_id, (witness, score) in removed.items():
        assert score == jaccard(sets[doc_id], sets[witness])
        assert score >= THRESHOLD
        assert witness in kept
        assert doc_id not in kept


def test_no_two_kept_documents_are_clear_duplicates(made: Any, sets: dict[int, set[Any]]) -> None:
    kept = [row["doc_id"] for row in made.verdicts() if row["dropped_by"] is None]
    close = [pair for pair in itertools.combinations(kept, 2) if jaccard(sets[pair[0]], sets[pair[1]]) >= 0.84]
    assert close == []


def test_the_removal_is_the_greedy_one_over_all_pairs(made: Any, sets: dict[int, set[Any]]) -> None:
    books = {row["doc_id"] for row in made.verdicts() if (row["url"] or "").startswith("http://library.example")}
    kept: list[int] = []
    expected: dict[int, tuple[int, float]] = {}
    for doc_id in sorted(sets, key=lambda doc_id: (doc_id not in books, doc_id)):
        close = [(-jaccard(sets[doc_id], sets[other]), rank, other) for rank, other in enumerate(kept)]
        best = min(close, default=(0.0, 0, 0))
        if -best[0] >= THRESHOLD:
            expected[doc_id] = (best[2], -best[0])
        else:
            kept.append(doc_id)
    assert removed_of(made) == expected


def test_planted_copies_lose_to_the_book_of_higher_priority(made: Any, corpus: Any) -> None:
    by_url = {row["url"]: row for row in made.verdicts() if row["url"]}
    compared = 0
    for copy, original in corpus.near:
        if by_url[original]["dropped_by"] is None and by_url[copy]["dropped_by"] == "near_dedup_v1":
            assert by_url[copy]["witness"] == by_url[original]["doc_id"]
            compared += 1
    assert compared >= 6


def test_ranges_and_splits_change_nothing(made: Any, cut_fine: Any) -> None:
    assert len(cut_fine.units("near")) > 8 > len(made.units("near"))
    assert removed_of(cut_fine) == removed_of(made)
    assert clusters_of(cut_fine) == clusters_of(made)


def test_clusters_are_of_the_survivors_that_others_were_removed_for(made: Any) -> None:
    removed, clusters = removed_of(made), clusters_of(made)
    assert set(clusters) == {witness for witness, _ in removed.values()}
    hashes = dict(zip(*(made.judged("keys").column(n).to_pylist() for n in ("doc_id", "content_hash")), strict=True))
    members = {*removed, *clusters}
    for kept, cluster in clusters.items():
        mine = {kept, *(doc_id for doc_id, (witness, _) in removed.items() if witness == kept)}
        assert cluster == hashes[min(mine)]
    assert set(clusters.values()) <= {hashes[doc_id] for doc_id in members}
    assert len(set(clusters.values())) == len(clusters)


def test_without_near_deduplication_nothing_is_removed(bare: Any) -> None:
    assert not [name for name in bare.run.digests if name.startswith("near")]
    assert not list(bare.root.glob("near*"))
    for split in bare.splits:
        assert bare.read("drops", "drops", split).num_rows == bare.read("drops", "clusters", split).num_rows == 0


def test_near_deduplication_alone(corpus: Any, run_recipe: Any, tmp_path: Any) -> None:
    alone = run_recipe(tmp_path / "run", corpus.recipe(dedup={"exact": False}, schedule=None), corpus.folder)
    assert not {"exact_keys", "exact", "near_witnesses"} & set(alone.passes)
    by_url = {row["url"]: row for row in alone.verdicts() if row["url"]}
    for copy, original in corpus.exact:
        if by_url[original]["dropped_by"] is None:
            assert by_url[copy]["dropped_by"] in ("near_dedup_v1", "perplexity_v1:late")
            assert by_url[copy]["witness"] in (by_url[original]["doc_id"], None)


def test_counts(made: Any, cut_fine: Any) -> None:
    for one in (made, cut_fine):
        counts = [one.statistics("near", unit) for unit in one.units("near")]
        assert sum(count["removed"] for count in counts) == len(removed_of(one))
        assert sum(count["limited"] for count in counts) == 0
        documents = sum(count["documents"] for count in counts)
        assert documents == sum(entry.rows for entry in one.run.files("near_sets", "sets").values())
        assert documents >= 2 * len({witness for witness, _ in removed_of(one).values()})
        assert sum(count["comparisons"] for count in counts) >= len(removed_of(one))


@pytest.mark.parametrize("buffer_bytes", [1, 1 << 20])
def test_sets_come_back_from_the_blocks_they_were_dealt_to(tmp_path: Any, buffer_bytes: int) -> None:
    rng = np.random.default_rng(0)
    rows = np.zeros(50, set_row(3))
    rows["doc_id"], rows["component"] = np.arange(50), rng.integers(0, 9, 50)
    rows["shingles"] = rng.integers(0, 5, 50)
    hashes = rng.integers(0, 1 << 63, int(rows["shingles"].sum()), np.uint64)
    where = component_range(rows, 4)
    store = Store(tmp_path / "store")
    with Blocks(tmp_path / "scratch", 4, buffer_bytes) as blocks:
        for cut in (slice(0, 20), slice(20, 50)):
            begin, end = (int(rows["shingles"][: at or 0].sum()) for at in (cut.start, cut.stop))
            add_sets(blocks, rows[cut], hashes[begin:end], where[cut])
        entry = blocks.publish(store, "near_sets/sets", "00000")
    found = {}
    for block in range(4):
        for some, theirs in sets_in(read_block(store, entry, block), 3):
            ends = np.cumsum(some["shingles"])
            for row, end in zip(some, ends.tolist(), strict=True):
                found[int(row["doc_id"])] = theirs[end - row["shingles"] : end].tolist()
                assert component_range(np.array([row]), 4)[0] == block
    ends = np.cumsum(rows["shingles"]).tolist()
    assert found == {at: hashes[end - rows["shingles"][at] : end].tolist() for at, end in enumerate(ends)}
