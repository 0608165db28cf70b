from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from pipelines.passes.keys import alive_keys


def alive(made: Any, columns: list[str]) -> list[pa.Table]:
    """The keys that exact deduplication sees, by split."""
    work, store = made.passes["exact_ranges"], made.run.store
    return [alive_keys(work, store, unit, columns) for unit in made.unit_inputs("exact_ranges").values()]


def drops_of(made: Any) -> list[tuple[int, int]]:
    return [(row["doc_id"], row["witness"]) for row in made.read("exact", "drops").to_pylist()]


def test_the_survivor_of_equal_content_is_the_smallest_by_priority_and_id(made: Any) -> None:
    texts = dict(zip(*(made.judged("documents").column(name).to_pylist() for name in ("doc_id", "text")), strict=True))
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for table in alive(made, ["doc_id", "priority"]):
        for row in table.to_pylist():
            groups[" ".join(texts[row["doc_id"]].split())].append((row["priority"], row["doc_id"]))
    expected = {(doc_id, min(group)[1]) for group in groups.values() for _, doc_id in group if doc_id != min(group)[1]}
    assert set(drops_of(made)) == expected
    assert len(expected) >= 4


def test_ranges_and_splits_change_nothing(made: Any, cut_fine: Any) -> None:
    assert drops_of(cut_fine) == drops_of(made)
    assert len(cut_fine.units("near_pairs")) > 8 > len(made.units("near_pairs"))
    assert cut_fine.inputs("exact_ranges").rows(cut_fine.passes["exact_ranges"].keys) == made.judged("keys").num_rows


def test_without_exact_deduplication_there_are_no_ranges(bare: Any) -> None:
    assert not {"exact_ranges", "exact"} & set(bare.run.digests)
    assert not {"exact_ranges", "exact"} & {path.name for path in bare.root.iterdir()}


def test_keys_leave_out_what_the_cuts_dropped(made: Any) -> None:
    cut = {row["doc_id"] for row in made.verdicts() if row["dropped_by"] == "perplexity_v1:late"}
    seen = {doc_id for table in alive(made, ["doc_id"]) for doc_id in table.column("doc_id").to_pylist()}
    assert cut
    assert seen == set(made.judged("keys").column("doc_id").to_pylist()) - cut
    assert alive(made, ["priority", "doc_id"])[0].column_names == ["priority", "doc_id"]
