from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.compute as pc

from pipelines.inspection.verdicts import verdicts
from pipelines.passes.build import build_passes
from pipelines.passes.drops import FATE, SCHEMA
from pipelines.passes.score_counts import SCORES, count_scores
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace


def drops_of(made: Any) -> list[dict[str, Any]]:
    tables = [made.read("drops", "drops", split) for split in made.splits]
    assert all(table.schema.equals(SCHEMA) for table in tables)
    return [row for table in tables for row in table.to_pylist()]


def test_nothing_is_dropped_twice_and_each_file_names_only_its_own_split(made: Any) -> None:
    ids = [row["doc_id"] for row in drops_of(made)]
    assert ids == sorted(set(ids))
    kept = set(made.judged("keys").column("doc_id").to_pylist())
    assert set(ids) <= kept
    for split in made.splits:
        own = made.read("judge", "keys", split).column("doc_id").to_pylist()
        dropped = made.read("drops", "drops", split).column("doc_id").to_pylist()
        assert set(dropped) <= set(own)


def test_every_duplicate_has_a_witness_that_is_kept_in_the_end(made: Any) -> None:
    rows = drops_of(made)
    gone = {row["doc_id"] for row in rows}
    kept = set(made.judged("keys").column("doc_id").to_pylist()) - gone
    for row in rows:
        duplicate = row["reason"] in ("exact_duplicate", "near_duplicate")
        assert (row["witness"] is not None) == duplicate == (row["jaccard"] is not None)
        if duplicate:
            assert row["witness"] in kept
            assert 0.8 <= row["jaccard"] == row["value"] <= 1.0
    assert set(Counter(row["reason"] for row in rows)) == {
        "too_plain",
        "too_chaotic",
        "exact_duplicate",
        "near_duplicate",
    }


def test_a_copy_of_a_near_duplicate_points_at_what_its_original_points_at(made: Any) -> None:
    by_url = {row["url"]: row for row in made.verdicts() if row["url"]}
    pair = [by_url["http://mirror.example/0"], by_url["http://mirror.example/copy"]]
    (copy,) = [row for row in pair if row["reason"] == "exact_duplicate"]
    (near,) = [row for row in pair if row["reason"] == "near_duplicate"]
    assert copy["witness"] == near["witness"] == by_url["http://library.example/0"]["doc_id"]
    assert copy["jaccard"] == near["jaccard"] < 1.0


def test_statistics_are_a_group_by_over_the_final_verdicts(made: Any) -> None:
    counted: Counter[tuple[Any, ...]] = Counter()
    for row in made.run.manifest("drops").table("counts").to_pylist():
        counted[tuple(row[key] for key in FATE)] += row["rows"]
    statistics = [made.statistics("drops", split) for split in made.splits]
    survivors = sum(found["survivors"] for found in statistics)
    survivor_bytes = sum(found["survivor_bytes"] for found in statistics)
    verdicts = made.verdicts()
    assert counted == Counter(tuple(row[key] for key in FATE) for row in verdicts)
    kept = [row for row in verdicts if row["dropped_by"] is None]
    assert (survivors, survivor_bytes) == (len(kept), sum(row["text_bytes"] for row in kept))


def test_ranges_and_splits_change_nothing(made: Any, cut_fine: Any) -> None:
    assert drops_of(cut_fine) == drops_of(made)


def test_a_split_without_drops_has_an_empty_file(bare: Any) -> None:
    assert len(bare.splits) == 5
    assert [bare.entry("drops", "drops", split).rows for split in bare.splits] == [0] * 5
    assert drops_of(bare) == []


def test_clusters_of_a_split_are_of_its_survivors(made: Any) -> None:
    members = [row["doc_id"] for split in made.splits for row in made.read("drops", "clusters", split).to_pylist()]
    kept = {row["doc_id"] for row in made.verdicts() if row["dropped_by"] is None}
    witnesses = {row["witness"] for row in drops_of(made) if row["reason"] == "near_duplicate"}
    assert sorted(members) == sorted(witnesses)
    assert set(members) <= kept


def test_scores_are_counted_beside_the_fates(made: Any) -> None:
    scores = made.run.manifest("drops").table("scores")
    assert scores.schema.names == ["unit", *SCORES.names]
    assert set(scores.column("unit").to_pylist()) == set(made.splits)
    for split in made.splits:
        # What a marker holds is what counting the split's final verdicts gives.
        (table,) = [one for one, name in zip(verdicts(made.run), made.splits, strict=True) if name == split]
        own = scores.filter(pc.equal(scores.column("unit"), split)).drop_columns(["unit"]).cast(SCORES)
        assert own.equals(count_scores(table, made.passes["drops"].chain))


def test_moving_a_limit_alone_is_no_part_of_what_is_counted(made: Any, corpus: Any) -> None:
    drops = made.passes["drops"]
    table = corpus.recipe()
    table["stages"][0]["min_words"] = 90
    other = Workspace.of(str(made.root), parse_recipe(table, "test"), str(corpus.folder))
    moved = next(one for one in build_passes(other, made.run.plan) if one.name == "drops")
    assert moved.section() == drops.section()
