"""*exact*: among documents of equal content, the smallest (priority, doc_id) survives. Sees keys only.

    keys of each split -> the first of each hash, shuffled by hash          (exact_keys: one unit per group of splits)
    keys of each hash  -> drops, shuffled by the split of the document      (exact: one unit per range of hashes)

Equal hashes of a split are combined before the shuffle, so no hash has more keys in it than there are splits. What that
leaves out (``copies``) stays with its split until *duplicates* finds its witness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipelines.beam import meter
from pipelines.beam.base import Inputs, UnitPass
from pipelines.beam.work_list import Output, Unit
from pipelines.passes.keys import Prefer, alive_keys, priorities_of
from pipelines.passes.shuffle import SplitGroups, blocks_for, dealt, names_of, places_of, range_of, shares
from pipelines.planning.labels import Labelling
from pipelines.tables import one_array
from pipelines.workspace import Job
from stages.dedup.exact import EXACT_KEY, exact_drops, exact_keys, first_copies


@dataclass(frozen=True)
class ExactKeys(UnitPass):
    """One unit per group of splits: the keys of its documents, by hash.

    Attributes:
        keys: the judges', by split.
        late: the marks laid over what judging found, where the recipe's limits ask for any.
        verdicts: where ``prefer`` is found.
        prefer: a column instead of the priorities of sources.
        labels: the priorities, which are joined from the plan.
        splits: the splits in groups.
        piece_bytes: about what a unit gives to another.
    """

    name: ClassVar[str] = "exact_keys"

    keys: Output
    late: Output | None
    verdicts: Output | None
    prefer: Prefer | None
    labels: Labelling
    splits: SplitGroups
    piece_bytes: int

    def units(self, inputs: Inputs) -> list[str]:
        """Return the groups of splits."""
        return self.splits.names

    def ranges(self, inputs: Inputs) -> int:
        """Return into how many ranges of hashes the keys are dealt."""
        return shares(inputs.rows(self.keys) * EXACT_KEY.itemsize, self.piece_bytes)

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the groups, each with the files of its splits."""
        ranges = self.ranges(inputs)
        found = self.splits.entries(inputs, (self.keys, self.late, self.verdicts))
        for name in pending:
            sources = [inputs.sources(split) for split in self.splits.groups[int(name)].splits]
            yield Unit(name, found[int(name)], {"ranges": ranges, "sources": sources})

    def work(self, job: Job, unit: Unit) -> None:
        """Take the keys of a group's splits, one split after the other."""
        ranges, sources = unit.detail["ranges"], unit.detail["sources"]
        with blocks_for(job.store, keys=ranges, copies=len(sources)) as (by_hash, by_split):
            for at, of_split in enumerate(sources):
                late = unit.files(self.late)[at] if self.late else None
                columns = ["doc_id", "source_index", "content_hash"]
                table = alive_keys(job.store, unit.files(self.keys)[at], late, columns)
                prefer = (self.prefer, unit.files(self.verdicts)[at]) if self.prefer and self.verdicts else None
                order = priorities_of(job.store, table, (self.labels, of_split), prefer)
                ids = table.column("doc_id").to_numpy()
                keys, copies = first_copies(exact_keys(one_array(table.column("content_hash")), order, ids))
                meter.note(rows=len(ids), nbytes=keys.nbytes)
                by_hash.add(keys, range_of(keys["hash_hi"], ranges))
                by_split.add(copies, np.full(len(copies), at))
            files = {
                "keys": by_hash.publish(job.store, "exact_keys/keys", unit.name),
                "copies": by_split.publish(job.store, "exact_keys/copies", unit.name),
            }
        job.commit(unit.name, files, {"ranges": ranges})


@dataclass(frozen=True)
class Exact(UnitPass):
    """One unit per range of hashes: the documents to drop, by the group of splits that they are in.

    Attributes:
        keys: by hash.
        ranges: how many ranges there are.
        splits: the splits in groups.
        range_bytes: most bytes of keys in memory.
        with_followers: whether drops are also given to the groups of their witnesses, which may be dropped later.
    """

    name: ClassVar[str] = "exact"

    keys: Output
    ranges: Output
    splits: SplitGroups
    range_bytes: int
    with_followers: bool

    def units(self, inputs: Inputs) -> list[str]:
        """Return the ranges."""
        return names_of(max(inputs.statistics(self.ranges).values(), default=1))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the ranges, each with the keys of all groups of splits."""
        detail = {"ranges": len(self.units(inputs)), "groups": self.splits.first_sources}
        files = tuple(inputs.files(self.keys).values())
        for name in pending:
            yield Unit(name, {self.keys: files}, detail)

    def work(self, job: Job, unit: Unit) -> None:
        """Find the drops of a range."""
        index, ranges, groups = int(unit.name), unit.detail["ranges"], unit.detail["groups"]
        counts = {"keys": 0, "suspects": 0, "dropped": 0}
        with (
            blocks_for(job.store, drops=len(groups), followers=len(groups)) as (by_split, by_witness),
            dealt(job.store, unit.files(self.keys), index, ranges, EXACT_KEY, self.range_bytes) as parts,
        ):
            for keys in parts:
                drops, statistics = exact_drops([keys])
                by_split.add(drops, places_of(drops["doc_id"], groups))
                if self.with_followers:
                    by_witness.add(drops, places_of(drops["witness"], groups))
                counts["keys"] += statistics.keys
                counts["suspects"] += statistics.suspects
                counts["dropped"] += len(drops)
            files = {"drops": by_split.publish(job.store, "exact/drops", unit.name)}
            if self.with_followers:
                files["followers"] = by_witness.publish(job.store, "exact/followers", unit.name)
        job.commit(unit.name, files, counts)
