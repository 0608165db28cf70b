from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.passes.blocks import read_block
from pipelines.passes.duplicates import DUPLICATE
from pipelines.passes.near import CLUSTER
from tests.pipelines.passes.test_exact import drops_of
from tests.pipelines.passes.test_near import clusters_of, removed_of


def by_split(made: Any, kind: str, dtype: np.dtype[Any]) -> dict[str, np.ndarray]:
    return {
        split: np.frombuffer(read_block(made.run.store, made.entry("duplicates", kind, group.name), at), dtype)
        for group in made.passes["duplicates"].splits.groups
        for at, split in enumerate(group.splits)
    }


def test_every_duplicate_is_there_once_with_the_witness_that_is_kept(made: Any, cut_fine: Any) -> None:
    for one in (made, cut_fine):
        rows = np.concatenate(list(by_split(one, "duplicates", DUPLICATE).values()))
        removed, exact = removed_of(one), dict(drops_of(one))
        near = {row["doc_id"]: (row["witness"], row["jaccard"]) for row in rows if row["is_near"]}
        assert near == removed
        found = {row["doc_id"]: (row["witness"], row["jaccard"]) for row in rows if not row["is_near"]}
        assert found == {doc_id: removed.get(witness, (witness, 1.0)) for doc_id, witness in exact.items()}
        # Some have lost the witness that exact deduplication gave them.
        assert set(exact.values()) & set(removed)
        gone = {*removed, *exact}
        assert len(rows) == len(gone)
        assert not set(rows["witness"].tolist()) & gone


def test_a_split_has_its_own_documents_alone(made: Any) -> None:
    for kind, dtype in (("duplicates", DUPLICATE), ("clusters", CLUSTER)):
        for split, rows in by_split(made, kind, dtype).items():
            own = set(made.read("judge", "keys", split).column("doc_id").to_pylist())
            assert set(rows["doc_id"].tolist()) <= own
            assert rows["doc_id"].tolist() == sorted(rows["doc_id"].tolist())


def test_clusters_are_all_there(made: Any) -> None:
    rows = np.concatenate(list(by_split(made, "clusters", CLUSTER).values()))
    assert {int(row["doc_id"]): bytes(row["cluster"]) for row in rows} == clusters_of(made)
