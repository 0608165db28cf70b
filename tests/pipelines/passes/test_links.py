from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pipelines.passes.blocks import read_block
from pipelines.passes.components import LABEL
from pipelines.passes.shuffle import rows_of
from stages.dedup.components import components
from stages.dedup.minhash import band_keys, bands_for
from stages.dedup.near import BAND_KEY
from stages.judges.fingerprint import signature_matrix
from tests.pipelines.passes.test_components import links_of
from tests.stages.dedup.slow import Document, buckets


def left(made: Any) -> set[int]:
    """What exact deduplication leaves."""
    return {row["doc_id"] for row in made.verdicts() if row["dropped_by"] in (None, "near_dedup_v1")}


def documents_of(made: Any) -> dict[int, Document]:
    """The same with their band keys, and as many shingles as they have."""
    table, alive = made.judged("keys"), left(made)
    keys = band_keys(signature_matrix(table.column("signature").combine_chunks()), *bands_for(0.8, 112))
    rows = zip(table.column("doc_id").to_pylist(), keys.tolist(), table.column("shingles").to_pylist(), strict=True)
    return {name: Document(0, tuple(of), frozenset(range(size))) for name, of, size in rows if name in alive and size}


def test_every_document_that_is_left_has_its_keys_in_the_range_that_they_belong_to(made: Any, cut_fine: Any) -> None:
    expected = {key for one in documents_of(made).values() for key in one.keys}
    for one in (made, cut_fine):
        found: list[int] = []
        ranges = len(one.units("near_buckets"))
        for unit in one.units("near_bands"):
            entry = one.entry("near_bands", "bands", unit)
            blocks = [np.frombuffer(read_block(one.run.store, entry, at), BAND_KEY) for at in range(ranges)]
            found += [key for rows in blocks for key in rows["key"].tolist()]
        assert set(found) == expected
        counts = [one.statistics("near_bands", unit) for unit in one.units("near_bands")]
        assert sum(count["documents"] for count in counts) == len(documents_of(one))
        assert sum(count["shingles"] for count in counts) == sum(
            len(document.shingles) for document in documents_of(one).values()
        )


def test_links_connect_exactly_what_shares_a_bucket(made: Any, cut_fine: Any) -> None:
    pairs = [pair for part in buckets(documents_of(made), 0.8) for pair in itertools.pairwise(part)]
    a, b = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    ids, roots = components(a, b)
    expected = dict(zip(ids.tolist(), roots.tolist(), strict=True))
    assert len(expected) > 10
    for one in (made, cut_fine):
        links = links_of(one)
        ids, roots = components(np.ascontiguousarray(links["a"]), np.ascontiguousarray(links["b"]))
        assert dict(zip(ids.tolist(), roots.tolist(), strict=True)) == expected


def test_a_unit_is_given_the_files_of_its_own_splits(made: Any) -> None:
    work = made.passes["near_bands"]
    assert [unit.name for unit in made.unit_inputs("near_bands").values()] == work.splits.names
    for unit, group in zip(made.unit_inputs("near_bands").values(), work.splits.groups, strict=True):
        expected = [made.entry("judge", "keys", split) for split in group.splits]
        assert list(unit.files(work.keys)) == expected
        assert [entry.path for entry in unit.files(work.copies)] == [
            made.entry("exact_keys", "copies", group.name).path
        ]
    labels = made.entry("near_components", "labels")
    assert len(rows_of(made.run.store, [labels], 0, LABEL)) <= labels.rows
