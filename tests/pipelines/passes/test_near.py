from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from pipelines.passes.keys import alive_keys
from pipelines.tables import read_table, structured
from stages.dedup.near import REMOVAL

THRESHOLD = 0.8


def removed_of(made: Any) -> dict[int, tuple[int, float]]:
    rows = structured(made.read("near", "removed"), REMOVAL)
    return {int(row["doc_id"]): (int(row["witness"]), float(row["jaccard"])) for row in rows}


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
    work = made.passes["near_pairs"]
    tables = [
        alive_keys(work, made.run.store, unit, ["priority", "doc_id"])
        for unit in made.unit_inputs("near_pairs").values()
    ]
    rows = [row for table in tables for row in table.to_pylist()]
    order = sorted((row["priority"], row["doc_id"]) for row in rows if row["doc_id"] in sets)
    kept: list[int] = []
    expected: dict[int, tuple[int, float]] = {}
    for _, doc_id in order:
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
    assert removed_of(cut_fine) == removed_of(made)
    for name in ("removed", "clusters"):
        one, other = (each.entry("near", name).sha256 for each in (made, cut_fine))
        assert one == other


def test_clusters_are_the_components_of_close_pairs(made: Any, sets: dict[int, set[Any]]) -> None:
    clusters = {row["doc_id"]: row["cluster_hash"] for row in made.read("near", "clusters").to_pylist()}
    members = {doc_id for doc_id, (witness, _) in removed_of(made).items()} | {w for w, _ in removed_of(made).values()}
    assert set(clusters) == members
    for one, other in itertools.combinations(sorted(members), 2):
        if jaccard(sets[one], sets[other]) >= THRESHOLD:
            assert clusters[one] == clusters[other]
    hashes = dict(zip(*(made.judged("keys").column(n).to_pylist() for n in ("doc_id", "content_hash")), strict=True))
    assert set(clusters.values()) <= {hashes[doc_id] for doc_id in members}
    assert len(set(clusters.values())) == len({w for w, _ in removed_of(made).values()})


def test_without_near_deduplication_nothing_is_removed(bare: Any) -> None:
    assert not [name for name in bare.run.digests if name.startswith("near")]
    assert not list(bare.root.glob("near*"))
    for split in bare.splits:
        assert bare.read("drops", "drops", split).num_rows == bare.read("drops", "clusters", split).num_rows == 0


def test_bands_find_a_pair_often_but_it_is_verified_once(made: Any) -> None:
    pairs = made.read("near_candidates", "pairs")
    codes = np.stack([pairs.column("a").to_numpy(), pairs.column("b").to_numpy()])
    assert np.unique(codes, axis=1).shape == codes.shape
    statistics = made.statistics("near")
    removed = made.read("near", "removed").num_rows
    assert statistics["pairs"] == pairs.num_rows >= statistics["verified"] >= removed > 0


def test_a_chunk_of_pairs_may_open_the_sets_of_its_own_splits_alone(made: Any, cut_fine: Any) -> None:
    for one in (made, cut_fine):
        work, store = one.passes["near_verify"], one.run.store
        for unit in one.unit_inputs("near_verify").values():
            chunk = one.read("near_candidates", "pairs").slice(
                int(unit.name) * work.pairs_per_unit, work.pairs_per_unit
            )
            ids = np.unique(np.concatenate([chunk.column(name).to_numpy() for name in ("a", "b")]))
            names = one.run.splits_of(ids)
            assert [entry.path for entry in unit.files(work.sets)] == [
                one.entry("near_sets", "sets", split).path for split in names
            ]
            held = [
                read_table(store, entry, ["doc_id"]).column("doc_id").to_pylist() for entry in unit.files(work.sets)
            ]
            assert set(ids.tolist()) <= {doc_id for found in held for doc_id in found}
