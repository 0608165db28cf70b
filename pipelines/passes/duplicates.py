"""*duplicates*: every duplicate with the witness that is kept in the end, by split.

    followers of removed documents -> their witnesses, shuffled by split    (near_witnesses: per group of splits)
    all that was found             -> the duplicates of each split          (duplicates: per group of splits)

A survivor among equal documents may be a near-duplicate itself: its own witness is then as close to all of its copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from pipelines.beam.base import Inputs, UnitPass
from pipelines.beam.work_list import Output, Unit
from pipelines.passes.near import CLUSTER
from pipelines.passes.shuffle import SplitGroups, blocks_for, places_of, rows_of
from pipelines.tables import is_in
from pipelines.workspace import Job
from shards.store import Store
from stages.dedup.exact import DROP
from stages.dedup.near import REMOVAL

DUPLICATE: Final = np.dtype([("doc_id", "<i8"), ("witness", "<i8"), ("jaccard", "<f8"), ("is_near", "?")])
"""A document that is dropped, and the one that is kept for it."""


@dataclass(frozen=True)
class NearWitnesses(UnitPass):
    """One unit per group of splits: exact duplicates whose survivor was removed, by their own group of splits.

    Attributes:
        followers: exact duplicates, by the group of splits of their witnesses.
        removed: near-duplicates, by group of splits.
        splits: the splits in groups.
    """

    name: ClassVar[str] = "near_witnesses"

    followers: Output
    removed: Output
    splits: SplitGroups

    def units(self, inputs: Inputs) -> list[str]:
        """Return the groups of splits."""
        return self.splits.names

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the groups, each with all that was found."""
        files = {output: tuple(inputs.files(output).values()) for output in self.inputs}
        for name in pending:
            yield Unit(name, files, self.splits.first_sources)

    def work(self, job: Job, unit: Unit) -> None:
        """Hand on the witnesses of a group's removed documents."""
        removed = _removed(job.store, unit, self.removed)
        followers = rows_of(job.store, unit.files(self.followers), int(unit.name), DROP)
        moved = _moved(followers["doc_id"], followers["witness"], removed)
        with blocks_for(job.store, moved=len(unit.detail)) as (blocks,):
            blocks.add(moved, places_of(moved["doc_id"], unit.detail))
            entry = blocks.publish(job.store, "near_witnesses/moved", unit.name)
        job.commit(unit.name, {"moved": entry}, {"moved": len(moved)})


@dataclass(frozen=True)
class Duplicates(UnitPass):
    """One unit per group of splits: its duplicates and the clusters of its survivors, by split.

    Attributes:
        copies: documents of equal content in one split; None without exact deduplication, as the next.
        drops: exact duplicates of documents in other splits, by group of splits.
        moved: those whose witness was removed; None unless near-duplicates are looked for too.
        removed: near-duplicates, by group of splits; None without near deduplication, as the next.
        clusters: of survivors, by group of splits.
        splits: the splits in groups.
    """

    name: ClassVar[str] = "duplicates"

    copies: Output | None
    drops: Output | None
    moved: Output | None
    removed: Output | None
    clusters: Output | None
    splits: SplitGroups

    def units(self, inputs: Inputs) -> list[str]:
        """Return the groups of splits."""
        return self.splits.names

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the groups, each with its own copies and all that was found otherwise."""
        found = {output: inputs.files(output) for output in self.inputs}
        for name in pending:
            own = {
                output: (files[name],) if output == self.copies else tuple(files.values())
                for output, files in found.items()
            }
            yield Unit(name, own, self.splits.groups[int(name)].first_sources)

    def work(self, job: Job, unit: Unit) -> None:
        """Gather what was found of a group's documents."""
        removed = _removed(job.store, unit, self.removed)
        exact = np.sort(np.concatenate(list(self._exact(job.store, unit, removed))), order="doc_id")
        found = np.sort(np.concatenate([exact, _duplicates(removed, is_near=True)]), order="doc_id")
        if (np.diff(found["doc_id"]) == 0).any():
            raise AssertionError(f"a document of group {unit.name} is a duplicate twice")
        splits = unit.detail
        with blocks_for(job.store, duplicates=len(splits), clusters=len(splits)) as (duplicates, clusters):
            duplicates.add(found, places_of(found["doc_id"], splits))
            if self.clusters is not None:
                members = np.sort(
                    rows_of(job.store, unit.files(self.clusters), int(unit.name), CLUSTER), order="doc_id"
                )
                clusters.add(members, places_of(members["doc_id"], splits))
            files = {
                "duplicates": duplicates.publish(job.store, "duplicates/duplicates", unit.name),
                "clusters": clusters.publish(job.store, "duplicates/clusters", unit.name),
            }
        job.commit(unit.name, files, {"duplicates": len(found)})

    def _exact(self, store: Store, unit: Unit, removed: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
        """Yield ``DUPLICATE`` of exact duplicates: of documents of other splits, then of the same split."""
        if self.drops is None or self.copies is None:
            yield np.empty(0, DUPLICATE)
            return
        drops = np.sort(rows_of(store, unit.files(self.drops), int(unit.name), DROP), order="doc_id")
        beyond = np.empty(len(drops), REMOVAL)
        beyond["doc_id"], beyond["witness"], beyond["jaccard"] = drops["doc_id"], drops["witness"], 1.0
        if self.moved is not None:
            moved = np.sort(rows_of(store, unit.files(self.moved), int(unit.name), REMOVAL), order="doc_id")
            beyond[np.searchsorted(beyond["doc_id"], moved["doc_id"])] = moved
        yield _duplicates(beyond, is_near=False)
        # What became of the document whose key stood for the copies of its split.
        gone = np.sort(np.concatenate([beyond, removed]), order="doc_id")
        for split in range(len(unit.detail)):
            copies = rows_of(store, unit.files(self.copies), split, DROP)
            ends = np.empty(len(copies), REMOVAL)
            ends["doc_id"], ends["witness"], ends["jaccard"] = copies["doc_id"], copies["witness"], 1.0
            ends[is_in(copies["witness"], gone["doc_id"])] = _moved(copies["doc_id"], copies["witness"], gone)
            yield _duplicates(ends, is_near=False)


def _removed(store: Store, unit: Unit, output: Output | None) -> npt.NDArray[Any]:
    """Return what was removed of a group, ascending by doc_id."""
    if output is None:
        return np.empty(0, REMOVAL)
    return np.sort(rows_of(store, unit.files(output), int(unit.name), REMOVAL), order="doc_id")


def _moved(doc_id: npt.NDArray[np.int64], witness: npt.NDArray[np.int64], gone: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``REMOVAL`` of those documents whose witness is gone, with the witness of that."""
    mine = is_in(witness, np.ascontiguousarray(gone["doc_id"]))
    moved = gone[np.searchsorted(gone["doc_id"], witness[mine])]
    moved["doc_id"] = doc_id[mine]
    return moved


def _duplicates(rows: npt.NDArray[Any], *, is_near: bool) -> npt.NDArray[Any]:
    found = np.empty(len(rows), DUPLICATE)
    for name in REMOVAL.names or ():
        found[name] = rows[name]
    found["is_near"] = is_near
    return found
