"""Which documents can be near-duplicates of each other: band keys, buckets, and links between those that share one.

    signatures of each split -> band keys, one for each bucket, shuffled by key    (near_bands: per group of splits)
    band keys of each bucket -> links                                              (near_buckets: per range of keys)

The documents of a split that share a bucket are linked there and then, and one key stands for them, so no bucket has
more keys in it than there are splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam import meter
from pipelines.beam.base import Inputs, UnitPass
from pipelines.beam.work_list import Output, Unit
from pipelines.passes.keys import alive_keys
from pipelines.passes.shuffle import SplitGroups, blocks_for, dealt, names_of, range_of, rows_of, shares
from pipelines.tables import TableFile, is_in, one_array, one_batch, read_batches, structured, unstructured
from pipelines.workspace import Job
from shards.store import FileEntry, Store
from stages.dedup.components import forest
from stages.dedup.exact import DROP
from stages.dedup.minhash import band_keys, bands_for
from stages.dedup.near import BAND_KEY, LINK, linked, near_keys
from stages.judges.fingerprint import signature_matrix


@dataclass(frozen=True)
class NearBands(UnitPass):
    """One unit per group of splits: the band keys of the documents that are left of it, by key.

    Attributes:
        keys: the judges', by split.
        late: the marks laid over what judging found, where the recipe's limits ask for any.
        copies: documents of equal content in one split; None without exact deduplication.
        drops: exact duplicates of documents in other splits, by group of splits.
        splits: the splits in groups.
        threshold: the Jaccard from which a document is a duplicate.
        permutations: the length of a signature.
        piece_bytes: about what a unit gives to another.
    """

    name: ClassVar[str] = "near_bands"

    keys: Output
    late: Output | None
    copies: Output | None
    drops: Output | None
    splits: SplitGroups
    threshold: float
    permutations: int
    piece_bytes: int

    def units(self, inputs: Inputs) -> list[str]:
        """Return the groups of splits."""
        return self.splits.names

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the groups, each with the files of its splits, and all drops."""
        bands, _ = bands_for(self.threshold, self.permutations)
        ranges = shares(inputs.rows(self.keys) * bands * BAND_KEY.itemsize, self.piece_bytes)
        found = self.splits.entries(inputs, (self.keys, self.late))
        copies = inputs.files(self.copies) if self.copies else {}
        drops = {self.drops: tuple(inputs.files(self.drops).values())} if self.drops else {}
        for name in pending:
            own = {self.copies: (copies[name],)} if self.copies else {}
            yield Unit(name, {**found[int(name)], **own, **drops}, ranges)

    def work(self, job: Job, unit: Unit) -> None:
        """Take the band keys of a group's splits, one split after the other."""
        count, ranges, group = len(unit.files(self.keys)), unit.detail, int(unit.name)
        documents = shingles = 0
        gone = np.empty(0, np.int64)
        if self.drops is not None:
            gone = np.sort(rows_of(job.store, unit.files(self.drops), group, DROP)["doc_id"])
        with (
            blocks_for(job.store, bands=ranges) as (by_key,),
            job.store.scratch() as scratch,
            LinkFile(scratch / "links.arrow") as links,
        ):
            for at in range(count):
                table = self._alive(job.store, unit, at, gone)
                ids, sizes = (table.column(name).to_numpy() for name in ("doc_id", "shingles"))
                bands = bands_for(self.threshold, self.permutations)
                found = band_keys(signature_matrix(one_array(table.column("signature"))), *bands)
                keys, shared = linked([near_keys(found, ids, sizes)], self.threshold)
                meter.note(rows=len(ids), nbytes=keys.nbytes)
                by_key.add(keys, range_of(keys["key"], ranges))
                links.write(shared)
                documents += len(ids)
                shingles += int(sizes.sum())
            files = {
                "bands": by_key.publish(job.store, "near_bands/bands", unit.name),
                "links": links.publish(job.store, "near_bands/links", unit.name),
            }
        job.commit(unit.name, files, {"ranges": ranges, "documents": documents, "shingles": shingles})

    def _alive(self, store: Store, unit: Unit, at: int, gone: npt.NDArray[np.int64]) -> pa.Table:
        """Return the keys of a split's documents that have shingles, and are alive and not in ``gone``, ascending."""
        late = unit.files(self.late)[at] if self.late else None
        table = alive_keys(store, unit.files(self.keys)[at], late, ["doc_id", "signature", "shingles"])
        ids = table.column("doc_id").to_numpy()
        # A document without shingles has nothing to compare: its signature would equal that of every other one.
        alive = (table.column("shingles").to_numpy() > 0) & ~is_in(ids, gone)
        if self.copies is not None:
            copies = rows_of(store, unit.files(self.copies), at, DROP)
            alive &= ~is_in(ids, np.sort(copies["doc_id"]))
        # Once for all reasons: signatures are most of what is copied.
        return table if alive.all() else table.filter(pa.array(alive))


@dataclass(frozen=True)
class NearBuckets(UnitPass):
    """One unit per range of band keys: links between the documents of each bucket.

    Attributes:
        bands: by key.
        ranges: how many ranges there are.
        threshold: the Jaccard from which a document is a duplicate.
        range_bytes: most bytes of keys in memory.
    """

    name: ClassVar[str] = "near_buckets"

    bands: Output
    ranges: Output
    threshold: float
    range_bytes: int

    def units(self, inputs: Inputs) -> list[str]:
        """Return the ranges."""
        return names_of(max(inputs.statistics(self.ranges).values(), default=1))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the ranges, each with the keys of all groups of splits."""
        ranges, files = len(self.units(inputs)), tuple(inputs.files(self.bands).values())
        for name in pending:
            yield Unit(name, {self.bands: files}, ranges)

    def work(self, job: Job, unit: Unit) -> None:
        """Link the documents of a range's buckets."""
        with (
            job.store.scratch() as scratch,
            LinkFile(scratch / "links.arrow") as links,
            dealt(job.store, unit.files(self.bands), int(unit.name), unit.detail, BAND_KEY, self.range_bytes) as parts,
        ):
            for keys in parts:
                links.write(linked([keys], self.threshold)[1])
            entry = links.publish(job.store, "near_buckets/links", unit.name)
        job.commit(unit.name, {"links": entry})


class LinkFile(TableFile):
    """A table of links in the making, fewer than documents in each batch. A context manager: it closes the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        super().write(one_batch(unstructured(np.empty(0, LINK))))

    def __enter__(self) -> LinkFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, links: Any) -> None:
        """Append links that have the same components as those given."""
        if len(links):
            super().write(one_batch(unstructured(forest(links))))


def read_links(store: Store, entries: Iterable[FileEntry], at_once: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the links of some files, about ``at_once`` of them at a time or what one batch holds."""
    waiting: list[npt.NDArray[Any]] = []
    for entry in entries:
        for batch in read_batches(store, entry):
            waiting.append(structured(pa.Table.from_batches([batch]), LINK))
            if sum(map(len, waiting)) >= at_once:
                yield np.concatenate(waiting)
                waiting = []
    if waiting:
        yield np.concatenate(waiting)
