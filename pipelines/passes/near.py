"""*near*: near-duplicates by MinHash-LSH, every removal verified by exact Jaccard against a kept witness.

    documents in any component -> shingle sets, shuffled by component    (near_sets: one unit per group of splits)
    whole components           -> survivors, witnesses, clusters         (near: one unit per range of components)

``pipelines.passes.links`` and ``components`` say which documents those are. Text is read where it lies, by split; what
is shuffled of it are the sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam import meter
from pipelines.beam.base import ALL, Inputs, UnitPass
from pipelines.beam.work_list import Output, Unit
from pipelines.passes.blocks import Blocks
from pipelines.passes.components import LABEL
from pipelines.passes.keys import Prefer, alive_keys, priorities_of
from pipelines.passes.shuffle import (
    SplitGroups,
    blocks_for,
    names_of,
    pieces_of,
    places_of,
    range_of,
    rows_of,
    shares,
)
from pipelines.planning.labels import Labelling
from pipelines.tables import is_in, one_array, read_batches
from pipelines.workspace import Job
from stages.dedup.minhash import band_keys, bands_for
from stages.dedup.near import ShingleSets, survivors
from stages.jit import mix64
from stages.judges.fingerprint import signature_matrix
from stages.text.shingles import batch_shingles

HASH: Final = np.dtype("V16")
CLUSTER: Final = np.dtype([("doc_id", "<i8"), ("cluster", HASH)])
"""A survivor with near-duplicates, and the content hash of the first document of its cluster."""

_COUNTS: Final = np.dtype([("rows", "<u8"), ("hashes", "<u8")])


def set_row(bands: int) -> np.dtype[Any]:
    """Return the type of what is known of a document beside its shingles."""
    return np.dtype(
        [
            ("component", "<i8"),
            ("doc_id", "<i8"),
            ("priority", "<i8"),
            ("shingles", "<u4"),
            ("content_hash", HASH),
            ("keys", "<u8", (bands,)),
        ]
    )


def component_range(rows: npt.NDArray[Any], ranges: int) -> npt.NDArray[np.int64]:
    """Return the range of the component of each row, int64 of shape (n,)."""
    return range_of(mix64(rows["component"].astype(np.uint64)), ranges)


@dataclass(frozen=True)
class NearSets(UnitPass):
    """One unit per group of splits: the shingle sets of its documents that are in any component, by component.

    Attributes:
        documents: what the judges kept, by split.
        keys: their keys, by split.
        labels_of: the component of each document, by group of splits.
        shingles: shingles of all documents with band keys, by group of splits.
        verdicts: where ``prefer`` is found.
        prefer: a column instead of the priorities of sources.
        labels: the priorities, which are joined from the plan.
        splits: the splits in groups.
        shingle_words: length of a shingle.
        threshold: the Jaccard from which a document is a duplicate.
        permutations: the length of a signature.
        piece_bytes: about what a unit gives to another.
    """

    name: ClassVar[str] = "near_sets"
    version: ClassVar[int] = 2

    documents: Output
    keys: Output
    labels_of: Output
    shingles: Output
    verdicts: Output | None
    prefer: Prefer | None
    labels: Labelling
    splits: SplitGroups
    shingle_words: int
    threshold: float
    permutations: int
    piece_bytes: int

    def units(self, inputs: Inputs) -> list[str]:
        """Return the groups of splits."""
        return self.splits.names

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the groups, each with the files of its splits, and the labels of all."""
        ranges = shares(sum(inputs.statistics(self.shingles).values()) * 8, self.piece_bytes)
        found = self.splits.entries(inputs, (self.documents, self.keys, self.verdicts))
        labels = (inputs.files(self.labels_of)[ALL],)
        for name in pending:
            sources = [inputs.sources(split) for split in self.splits.groups[int(name)].splits]
            yield Unit(name, {**found[int(name)], self.labels_of: labels}, {"ranges": ranges, "sources": sources})

    def work(self, job: Job, unit: Unit) -> None:
        """Shingle a group's documents, one split after the other."""
        ranges = unit.detail["ranges"]
        labels = np.sort(rows_of(job.store, unit.files(self.labels_of), int(unit.name), LABEL), order="doc_id")
        with blocks_for(job.store, sets=ranges) as (sets,):
            for at, sources in enumerate(unit.detail["sources"]):
                table = alive_keys(
                    job.store,
                    unit.files(self.keys)[at],
                    None,
                    ["doc_id", "source_index", "content_hash", "signature", "shingles"],
                )
                table = table.filter(pa.array(is_in(table.column("doc_id").to_numpy(), labels["doc_id"])))
                if table.num_rows:
                    rows = self._rows(job, unit, at, table, sources, labels)
                    self._add_sets(job, unit, at, rows, sets, ranges)
            entry = sets.publish(job.store, "near_sets/sets", unit.name)
        job.commit(unit.name, {"sets": entry}, {"ranges": ranges})

    def _rows(
        self, job: Job, unit: Unit, at: int, table: pa.Table, sources: Any, labels: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Return the rows of a split's documents, in doc_id order, without the sizes of their sets."""
        prefer = (self.prefer, unit.files(self.verdicts)[at]) if self.prefer and self.verdicts else None
        bands, length = bands_for(self.threshold, self.permutations)
        rows = np.zeros(table.num_rows, set_row(bands))
        rows["doc_id"] = table.column("doc_id").to_numpy()
        rows["component"] = labels["component"][np.searchsorted(labels["doc_id"], rows["doc_id"])]
        rows["priority"] = priorities_of(job.store, table, (self.labels, sources), prefer)
        hashes = one_array(table.column("content_hash"))
        rows["content_hash"] = np.frombuffer(hashes.buffers()[1], HASH)[hashes.offset : hashes.offset + len(hashes)]
        rows["keys"] = band_keys(signature_matrix(one_array(table.column("signature"))), bands, length)
        return rows

    def _add_sets(self, job: Job, unit: Unit, at: int, rows: npt.NDArray[Any], sets: Blocks, ranges: int) -> None:
        found = 0
        for batch in read_batches(job.store, unit.files(self.documents)[at]):
            batch = batch.filter(pa.array(is_in(batch.column("doc_id").to_numpy(), rows["doc_id"])))
            if not batch.num_rows:
                continue
            offsets, hashes = batch_shingles(batch.column("text"), self.shingle_words)
            mine = rows[np.searchsorted(rows["doc_id"], batch.column("doc_id").to_numpy())]
            mine["shingles"] = np.diff(offsets)
            meter.note(rows=len(mine), nbytes=batch.nbytes)
            add_sets(sets, mine, hashes, component_range(mine, ranges))
            found += len(mine)
        if found != len(rows):
            raise AssertionError(f"{len(rows) - found} documents of unit {unit.name} have keys and no text")


def add_sets(
    sets: Blocks, rows: npt.NDArray[Any], hashes: npt.NDArray[np.uint64], where: npt.NDArray[np.int64]
) -> None:
    """Append documents with their shingles to blocks.

    Args:
        sets: blocks of sets.
        rows: ``set_row`` of shape (n,).
        hashes: the shingles of all, one document's behind another's.
        where: the block of each document.
    """
    ends = np.cumsum(rows["shingles"].astype(np.int64))
    begins = ends - rows["shingles"]
    for block in np.unique(where).tolist():
        at = np.flatnonzero(where == block)
        found = np.concatenate([hashes[begins[row] : ends[row]] for row in at.tolist()])
        head = np.array([(len(at), len(found))], _COUNTS)
        sets.append(block, head.tobytes() + rows[at].tobytes() + found.astype("<u8").tobytes(), len(at))


def sets_in(data: bytes, bands: int) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.uint64]]]:
    """Yield (rows, shingles) as they were appended to a block."""
    at, kind = 0, set_row(bands)
    while at < len(data):
        rows, hashes = np.frombuffer(data, _COUNTS, 1, at)[0].tolist()
        at += _COUNTS.itemsize
        yield np.frombuffer(data, kind, rows, at), np.frombuffer(data, "<u8", hashes, at + rows * kind.itemsize)
        at += rows * kind.itemsize + hashes * 8


@dataclass(frozen=True)
class Near(UnitPass):
    """One unit per range of components: what is removed and what clusters the rest is in, by group of splits.

    Attributes:
        sets: by component.
        ranges: how many ranges there are.
        splits: the splits in groups.
        threshold: the Jaccard from which a document is a duplicate.
        permutations: the length of a signature.
        compared_per_key: most kept documents of a bucket that a later one is compared with.
        range_bytes: about the most bytes of sets in memory; those of one component more than that are mapped from disk.
    """

    name: ClassVar[str] = "near"
    version: ClassVar[int] = 2

    sets: Output
    ranges: Output
    splits: SplitGroups
    threshold: float
    permutations: int
    compared_per_key: int
    range_bytes: int

    def units(self, inputs: Inputs) -> list[str]:
        """Return the ranges."""
        return names_of(max(inputs.statistics(self.ranges).values(), default=1))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the ranges, each with the sets of all groups of splits."""
        detail = {"ranges": len(self.units(inputs)), "groups": self.splits.first_sources}
        files = tuple(inputs.files(self.sets).values())
        for name in pending:
            yield Unit(name, {self.sets: files}, detail)

    def work(self, job: Job, unit: Unit) -> None:
        """Find the survivors of a range's components, a part of them at a time."""
        index, ranges, groups = int(unit.name), unit.detail["ranges"], unit.detail["groups"]
        files = unit.files(self.sets)
        bands, _ = bands_for(self.threshold, self.permutations)
        parts = max(1, -(-sum(entry.size for entry in files) // ranges // self.range_bytes))
        counts = {"documents": 0, "comparisons": 0, "limited": 0, "removed": 0}
        with (
            blocks_for(job.store, removed=len(groups), clusters=len(groups)) as (removed, clusters),
            blocks_for(job.store, rows=parts, hashes=parts) as (rows_of_part, hashes_of_part),
        ):
            for piece in pieces_of(job.store, files, index):
                for rows, hashes in sets_in(piece, bands):
                    where = component_range(rows, ranges * parts) - index * parts
                    rows_of_part.add(rows, where)
                    owners = np.repeat(where, rows["shingles"])
                    hashes_of_part.add(hashes, owners)
            for part in range(parts):
                rows = rows_of_part.array(part, set_row(bands))
                found, members = self._survivors(rows, hashes_of_part.array(part, "<u8"))
                removed.add(found.removals, places_of(found.removals["doc_id"], groups))
                clusters.add(members, places_of(members["doc_id"], groups))
                for name, count in (
                    ("documents", len(rows)),
                    ("comparisons", found.comparisons),
                    ("limited", int(found.limited.sum())),
                    ("removed", len(found.removals)),
                ):
                    counts[name] += count
            entries = {
                "removed": removed.publish(job.store, "near/removed", unit.name),
                "clusters": clusters.publish(job.store, "near/clusters", unit.name),
            }
        job.commit(unit.name, entries, counts)

    def _survivors(self, rows: npt.NDArray[Any], hashes: npt.NDArray[np.uint64]) -> tuple[Any, npt.NDArray[Any]]:
        """Return what became of a part's documents, and ``CLUSTER`` of the survivors that others were removed for."""
        offsets = np.append(0, np.cumsum(rows["shingles"].astype(np.int64)))
        sets = ShingleSets(
            np.ascontiguousarray(rows["doc_id"]),
            np.ascontiguousarray(rows["priority"]),
            np.ascontiguousarray(rows["keys"]),
            offsets,
            hashes,
        )
        found = survivors(sets, self.threshold, self.compared_per_key)
        by_id = np.argsort(sets.doc_id)
        ids = sets.doc_id[by_id]
        in_clusters = np.unique(found.cluster[np.isin(sets.doc_id, found.removals["doc_id"])])
        is_member = np.isin(found.cluster, in_clusters) & ~np.isin(sets.doc_id, found.removals["doc_id"])
        members = np.flatnonzero(is_member)
        clusters = np.empty(len(members), CLUSTER)
        clusters["doc_id"] = sets.doc_id[members]
        first = by_id[np.searchsorted(ids, found.cluster[members])]
        clusters["cluster"] = rows["content_hash"][first]
        return found, np.sort(clusters, order="doc_id")
