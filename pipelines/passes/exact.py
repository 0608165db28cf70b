"""*exact*: among documents of equal content, the smallest (priority, doc_id) survives. Sees keys only.

Keys are shuffled by ranges of their hash, as bytes of numpy arrays: ``splits | keys | GroupByKey | exact_drops |
publish``. The number of ranges follows from the number of keys, never from the workers, and no range's result depends
on arrival order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from pipelines.beam.base import ALL, BeamPass, Builder, DriverPass, Inputs
from pipelines.beam.dofn import Step
from pipelines.beam.work_list import Output, Unit
from pipelines.capacity.estimate import RANGES_PER_PIPELINE
from pipelines.passes.keys import KeysBySplit, alive_keys, merged, range_names, splits
from pipelines.planning.labels import Labelling
from pipelines.tables import one_array, publish_table, unstructured
from pipelines.workspace import Job
from stages.dedup.exact import DROP, EXACT_KEY, exact_drops, exact_keys


@dataclass(frozen=True)
class ExactRanges(BeamPass):
    """One unit per hash range."""

    name: ClassVar[str] = "exact_ranges"
    units_per_pipeline: ClassVar[int | None] = RANGES_PER_PIPELINE
    starts_from_all: ClassVar[bool] = True

    keys: Output
    late: Output | None
    range_bytes: int
    labels: Labelling
    """The priorities, which are joined from the plan."""

    def units(self, inputs: Inputs) -> list[str]:
        """Return the ranges, enough of them to keep each under ``range_bytes``."""
        return range_names(inputs.rows(self.keys) * EXACT_KEY.itemsize, self.range_bytes)

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the splits."""
        ranges = len(self.units(inputs))
        return splits(inputs, self.keys, ranges)

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Shuffle the keys of the ranges in ``pending`` and find each range's drops."""
        return functools.partial(_add_ranges, _Keys(self, job, pending))


def _add_ranges(keys: _Keys, splits: Any) -> None:
    _ = (
        splits
        | "keys" >> beam.ParDo(keys).with_output_types(tuple[int, bytes])
        | "by range" >> beam.GroupByKey()
        | "drops" >> beam.ParDo(_Drops(keys.job))
    )


class _Keys(KeysBySplit):
    hashed = "hash_hi"

    def __init__(self, work: ExactRanges, job: Job, wanted: Sequence[str]) -> None:
        super().__init__(job, wanted)
        self._pass = work

    def keys(self, split: Unit) -> npt.NDArray[Any]:
        table = alive_keys(self._pass, self.job.store, split, ["doc_id", "priority", "content_hash"])
        return exact_keys(
            one_array(table.column("content_hash")),
            table.column("priority").to_numpy(),
            table.column("doc_id").to_numpy(),
        )


class _Drops(Step):
    def __init__(self, job: Job) -> None:
        self._job = job

    def work(self, keyed: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        index, found = keyed
        drops, statistics = exact_drops([np.frombuffer(piece, EXACT_KEY) for piece in found])
        unit = f"{index:05d}"
        entry = publish_table(self._job.store, unstructured(drops), "exact_ranges/drops", unit)
        counts = {"keys": statistics.keys, "suspects": statistics.suspects, "dropped": len(drops)}
        self._job.commit(unit, {"drops": entry}, counts)
        yield from ()


@dataclass(frozen=True)
class Exact(DriverPass):
    """Merges the ranges' drops into one table sorted by doc_id, which workers open by its path."""

    name: ClassVar[str] = "exact"

    drops: Output

    def work(self, job: Job, inputs: Inputs) -> None:
        """Merge and sort."""
        found = merged(job.store, inputs.files(self.drops).values(), DROP)
        drops = np.sort(found, order="doc_id")
        entry = publish_table(job.store, unstructured(drops), self.name, ALL)
        job.commit(ALL, {"drops": entry}, {"dropped": len(drops)})
