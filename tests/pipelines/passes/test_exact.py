from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from pipelines.passes.blocks import read_block
from pipelines.passes.shuffle import rows_of
from stages.dedup.exact import DROP, EXACT_KEY


def drops_of(made: Any) -> list[tuple[int, int]]:
    """Exact duplicates with the witness that exact deduplication chose, in one split or of another."""
    store, found = made.run.store, {}
    files = list(made.run.files("exact", "drops").values())
    for group in made.passes["exact_keys"].splits.groups:
        beyond = dict(rows_of(store, files, int(group.name), DROP).tolist())
        copies = made.entry("exact_keys", "copies", group.name)
        for split in range(len(group.splits)):
            for document, stands in rows_of(store, [copies], split, DROP).tolist():
                found[document] = beyond.get(stands, stands)
        found |= beyond
    return sorted(found.items())


def expected(made: Any) -> list[tuple[int, int]]:
    texts = dict(zip(*(made.judged("documents").column(name).to_pylist() for name in ("doc_id", "text")), strict=True))
    groups = defaultdict(list)
    for row in made.verdicts():
        if row["dropped_by"] in (None, "exact_dedup_v1", "near_dedup_v1"):
            priority = 0 if (row["url"] or "").startswith("http://library") else 1
            groups[" ".join(texts[row["doc_id"]].split())].append((priority, row["doc_id"]))
    pairs = [(doc_id, min(group)[1]) for group in groups.values() for _, doc_id in group]
    return sorted((document, witness) for document, witness in pairs if document != witness)


def test_the_survivor_of_equal_content_is_the_smallest_by_priority_and_id(made: Any) -> None:
    assert drops_of(made) == expected(made)
    assert len(expected(made)) >= 4


def test_ranges_and_splits_change_nothing(made: Any, cut_fine: Any) -> None:
    assert drops_of(cut_fine) == drops_of(made)
    assert len(cut_fine.units("near_buckets")) > 8 > len(made.units("near_buckets"))
    assert len(cut_fine.units("exact")) > 4 > len(made.units("exact"))
    assert cut_fine.inputs("exact_keys").rows(cut_fine.passes["exact_keys"].keys) == made.judged("keys").num_rows


def test_each_document_is_in_one_key_or_a_copy(made: Any, cut_fine: Any) -> None:
    cut = {row["doc_id"] for row in made.verdicts() if row["dropped_by"] == "perplexity_v1:late"}
    assert cut
    for one in (made, cut_fine):
        seen = []
        for unit in one.units("exact_keys"):
            for kind, dtype, blocks in (
                ("keys", EXACT_KEY, one.statistics("exact_keys", unit)["ranges"]),
                ("copies", DROP, len(one.passes["exact_keys"].splits.groups[int(unit)].splits)),
            ):
                entry = one.entry("exact_keys", kind, unit)
                found = [np.frombuffer(read_block(one.run.store, entry, at), dtype) for at in range(blocks)]
                assert sum(map(len, found)) == entry.rows
                seen += [doc_id for rows in found for doc_id in rows["doc_id"].tolist()]
        # What the cuts dropped is left out.
        assert sorted(seen) == sorted(set(one.judged("keys").column("doc_id").to_pylist()) - cut)


def test_without_exact_deduplication_there_are_no_ranges(bare: Any) -> None:
    assert not {"exact_keys", "exact", "duplicates"} & set(bare.run.digests)
    assert not {"exact_keys", "exact", "duplicates"} & {path.name for path in bare.root.iterdir()}


def test_exact_deduplication_alone(corpus: Any, run_recipe: Any, tmp_path: Any) -> None:
    table = corpus.recipe(dedup={"near": False}, schedule=None)
    alone = run_recipe(tmp_path / "run", table, corpus.folder)
    assert "followers" not in next(alone.run.manifest("exact").markers()).files
    assert "near_witnesses" not in alone.passes
    found = {(row["doc_id"], row["witness"]) for row in alone.verdicts() if row["dropped_by"] == "exact_dedup_v1"}
    assert found == set(expected(alone)) == set(drops_of(alone))


@pytest.mark.parametrize("order", ["largest", "smallest"])
def test_the_survivor_may_be_chosen_by_any_column(corpus: Any, run_recipe: Any, tmp_path: Any, order: str) -> None:
    dedup = {"prefer": {"column": "text_bytes", "order": order}}
    chosen = run_recipe(tmp_path / "run", corpus.recipe(dedup=dedup, schedule=None), corpus.folder)
    sizes = {row["doc_id"]: row["text_bytes"] for row in chosen.verdicts()}
    rows = [row for row in chosen.verdicts() if row["dropped_by"] in ("exact_dedup_v1", "near_dedup_v1")]
    assert len(rows) >= 10
    for row in rows:
        mine, kept = sizes[row["doc_id"]], sizes[row["witness"]]
        assert (mine <= kept) if order == "largest" else (mine >= kept)
