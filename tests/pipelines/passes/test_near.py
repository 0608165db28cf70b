from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from pipelines.beam.base import DriverPass
from pipelines.tables import read_table, structured
from stages.dedup.near import REMOVAL

THRESHOLD = 0.8


def removed_of(made: Any) -> dict[int, tuple[int, float]]:
    files = made.run.folder("near").require(DriverPass.UNIT).files
    rows = structured(read_table(made.run.store, files["removed"]), REMOVAL)
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
    rows = made.judged("keys").select(["doc_id", "priority"]).to_pylist()
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
        one, other = (m.run.folder("near").require(DriverPass.UNIT).files[name].sha256 for m in (made, cut_fine))
        assert one == other


def test_clusters_are_the_components_of_close_pairs(made: Any, sets: dict[int, set[Any]]) -> None:
    files = made.run.folder("near").require(DriverPass.UNIT).files
    clusters = {row["doc_id"]: row["cluster_hash"] for row in read_table(made.run.store, files["clusters"]).to_pylist()}
    members = {doc_id for doc_id, (witness, _) in removed_of(made).items()} | {w for w, _ in removed_of(made).values()}
    assert set(clusters) == members
    for one, other in itertools.combinations(sorted(members), 2):
        if jaccard(sets[one], sets[other]) >= THRESHOLD:
            assert clusters[one] == clusters[other]
    hashes = dict(zip(*(made.judged("keys").column(n).to_pylist() for n in ("doc_id", "content_hash")), strict=True))
    assert set(clusters.values()) <= {hashes[doc_id] for doc_id in members}
    assert len(set(clusters.values())) == len({w for w, _ in removed_of(made).values()})


def test_without_near_deduplication_nothing_is_removed(bare: Any) -> None:
    assert removed_of(bare) == {}
    assert bare.run.manifest("near_pairs")["units"] == bare.run.manifest("near_sets")["units"] == []


def test_bands_find_a_pair_often_but_it_is_verified_once(made: Any) -> None:
    pairs = read_table(made.run.store, made.run.folder("near_candidates").require(DriverPass.UNIT).files["pairs"])
    codes = np.stack([pairs.column("a").to_numpy(), pairs.column("b").to_numpy()])
    assert np.unique(codes, axis=1).shape == codes.shape
    statistics = made.run.folder("near").require(DriverPass.UNIT).statistics
    assert statistics["pairs"] == pairs.num_rows >= statistics["verified"] >= statistics["removed"]
