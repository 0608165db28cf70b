from __future__ import annotations

from collections import Counter
from typing import Any

from pipelines.passes.drops import SCHEMA
from pipelines.passes.keys import split_names
from pipelines.tables import read_table


def drops_of(made: Any) -> list[dict[str, Any]]:
    folder = made.run.folder("drops")
    tables = [read_table(made.run.store, folder.require(split).files["drops"]) for split in split_names(made.run)]
    assert all(table.schema.equals(SCHEMA) for table in tables)
    return [row for table in tables for row in table.to_pylist()]


def test_nothing_is_dropped_twice_and_each_file_names_only_its_own_split(made: Any) -> None:
    ids = [row["doc_id"] for row in drops_of(made)]
    assert ids == sorted(set(ids))
    kept = set(made.judged("keys").column("doc_id").to_pylist())
    assert set(ids) <= kept
    for split in split_names(made.run):
        folder = made.run.folder
        own = read_table(made.run.store, folder("judge").require(split).files["keys"]).column("doc_id").to_pylist()
        dropped = read_table(made.run.store, folder("drops").require(split).files["drops"]).column("doc_id").to_pylist()
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


def test_statistics_are_a_group_by_over_the_drop_files(made: Any) -> None:
    keys = ("dropped_by", "reason", "language", "domain")
    counted: Counter[tuple[Any, ...]] = Counter()
    survivors = survivor_bytes = 0
    for unit in made.run.manifest("drops")["units"]:
        counted.update({tuple(group[key] for key in keys): group["rows"] for group in unit["statistics"]["counts"]})
        survivors += unit["statistics"]["survivors"]
        survivor_bytes += unit["statistics"]["survivor_bytes"]
    verdicts = made.verdicts()
    late = {row["doc_id"] for row in drops_of(made)}
    assert counted == Counter(tuple(row[key] for key in keys) for row in verdicts if row["doc_id"] in late)
    kept = [row for row in verdicts if row["dropped_by"] is None]
    assert (survivors, survivor_bytes) == (len(kept), sum(row["text_bytes"] for row in kept))


def test_ranges_and_splits_change_nothing(made: Any, cut_fine: Any) -> None:
    assert drops_of(cut_fine) == drops_of(made)


def test_a_split_without_drops_has_an_empty_file(bare: Any) -> None:
    units = bare.run.manifest("drops")["units"]
    assert len(units) == 5
    assert [unit["files"]["drops"]["rows"] for unit in units] == [0] * 5
    assert drops_of(bare) == []


def test_clusters_of_a_split_are_of_its_survivors(made: Any) -> None:
    folder = made.run.folder("drops")
    members = [
        row["doc_id"]
        for split in split_names(made.run)
        for row in read_table(made.run.store, folder.require(split).files["clusters"]).to_pylist()
    ]
    kept = {row["doc_id"] for row in made.verdicts() if row["dropped_by"] is None}
    witnesses = {row["witness"] for row in drops_of(made) if row["reason"] == "near_duplicate"}
    assert sorted(members) == sorted(witnesses)
    assert set(members) <= kept
