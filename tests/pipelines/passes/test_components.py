from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from pipelines.beam.runners import LocalRunner
from pipelines.passes.components import LABEL
from pipelines.passes.links import LinkFile, read_links
from pipelines.passes.shuffle import rows_of
from shards.store import Store
from stages.dedup.components import forest
from stages.dedup.near import LINK


def labels_of(made: Any) -> list[tuple[int, int]]:
    groups = made.passes["near_components"].splits.groups
    found = [rows_of(made.run.store, [made.entry("near_components", "labels")], int(g.name), LABEL) for g in groups]
    return [row for rows in found for row in rows.tolist()]


def links_of(made: Any) -> np.ndarray:
    entries = [*made.run.files("near_bands", "links").values(), *made.run.files("near_buckets", "links").values()]
    return np.concatenate([np.empty(0, LINK), *read_links(made.run.store, entries, 5)])


def test_every_linked_document_has_the_smallest_id_of_its_component(made: Any, cut_fine: Any) -> None:
    links = forest(links_of(made))
    expected = {(row["b"], row["a"]) for row in links} | {(row["a"], row["a"]) for row in links}
    assert len(expected) > 10
    assert labels_of(made) == labels_of(cut_fine) == sorted(expected)


@pytest.mark.parametrize("range_bytes", [64, 16 << 20])
def test_rounds_on_beam_write_the_same_bytes(made: Any, copied: Any, monkeypatch: Any, range_bytes: int) -> None:
    work = dataclasses.replace(made.passes["near_components"], links_in_memory=0, range_bytes=range_bytes)
    inputs = made.inputs("near_components")
    assert len(list(work.roots(inputs, ["all"]))) == len(made.units("near_bands")) + len(made.units("near_buckets"))
    commits = []
    monkeypatch.setattr("pipelines.workspace.PassFolder.commit", lambda folder, marker: commits.append(marker))
    job = made.run.job("near_components", made.run.digests["near_components"])
    LocalRunner(1).run(work, dataclasses.replace(job, root=str(copied)), inputs, ["all"], lambda: None)
    (marker,) = commits
    assert marker.files["labels"] == made.entry("near_components", "labels")


def test_how_components_are_found_is_no_part_of_the_digest(made: Any) -> None:
    work = made.passes["near_components"]
    assert dataclasses.replace(work, links_in_memory=0, range_bytes=7).section() == work.section()


def test_links_in_a_file_have_the_components_of_those_that_were_written(tmp_path: Any) -> None:
    store = Store(tmp_path / "store")
    chunks = [[(1, 2), (2, 3), (1, 3)], [], [(3, 4), (9, 8)]]
    with LinkFile(tmp_path / "links.arrow") as file:
        for chunk in chunks:
            file.write(np.array(chunk, LINK))
        entry = file.publish(store, "near_buckets/links", "00000")
    assert entry.rows == 4
    for at_once in (1, 3, 100):
        found = [row for links in read_links(store, [entry, entry], at_once) for row in links.tolist()]
        assert found == 2 * [(1, 2), (1, 3), (3, 4), (8, 9)]
