"""*exact*: among documents of equal content, the smallest (priority, doc_id) survives. Sees keys only.

Keys are shuffled by ranges of their hash, as numpy bytes: ``Create(splits) | keys | GroupByKey | exact_drops |
publish``. The number of ranges follows from the number of keys, never from the workers, and no range's result depends
on arrival order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from pipelines.beam.base import Builder, DriverPass, Pass
from pipelines.beam.dofn import Step
from pipelines.capacity.estimate import RANGES_PER_PIPELINE
from pipelines.passes.keys import KeysBySplit, alive_keys, documents, merged, range_names, split_names
from pipelines.tables import one_array, publish_table, read_table, structured, unstructured
from pipelines.workspace import Run
from stages.dedup.exact import DROP, EXACT_KEY, exact_drops, exact_keys


class ExactRanges(Pass):
    """One unit per hash range."""

    name = "exact_ranges"
    upstream = ("judge", "decide")
    units_per_pipeline = RANGES_PER_PIPELINE

    def section(self, run: Run) -> Any:
        """Whether exact duplicates are looked for, and the size of a range."""
        return [run.recipe.dedup.exact, run.recipe.dedup.range_bytes]

    def units(self, run: Run) -> list[str]:
        """The ranges: as many as keep each under ``range_bytes``."""
        if not run.recipe.dedup.exact:
            return []
        return range_names(documents(run) * EXACT_KEY.itemsize, run.recipe.dedup.range_bytes)

    def builder(self, run: Run, units: Sequence[str]) -> Builder:
        """Shuffle the keys of the ranges in ``units`` and find each range's drops."""
        splits = split_names(run)
        ranges = len(self.units(run))

        def build(pipeline: Any) -> None:
            _ = (
                pipeline
                | beam.Create(splits)
                | beam.Reshuffle()
                | "keys" >> beam.ParDo(_Keys(run, ranges, units, splits[0])).with_output_types(tuple[int, bytes])
                | beam.GroupByKey()
                | "drops" >> beam.ParDo(_Drops(run))
            )

        return build


class _Keys(KeysBySplit):
    hashed = "hash_hi"

    def keys(self, split: str) -> npt.NDArray[Any]:
        table = alive_keys(self._run, split, ["doc_id", "priority", "content_hash"])
        return exact_keys(
            one_array(table.column("content_hash")),
            table.column("priority").to_numpy(),
            table.column("doc_id").to_numpy(),
        )


class _Drops(Step):
    def __init__(self, run: Run) -> None:
        self._run = run

    def work(self, keyed: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        index, pieces = keyed
        drops, statistics = exact_drops([np.frombuffer(piece, EXACT_KEY) for piece in pieces])
        unit = f"{index:05d}"
        entry = publish_table(self._run.store, unstructured(drops), "exact_ranges/drops", unit)
        counts = {"keys": statistics.keys, "suspects": statistics.suspects, "drops": len(drops)}
        self._run.commit("exact_ranges", unit, {"drops": entry}, counts)
        yield from ()


class Exact(DriverPass):
    """Merges the ranges' drops into one table sorted by doc_id, which workers search by path."""

    name = "exact"
    upstream = ("exact_ranges",)

    def section(self, run: Run) -> Any:
        """Nothing beyond its upstream."""
        return []

    def work(self, run: Run) -> None:
        """Merge and sort."""
        drops = np.sort(merged(run, "exact_ranges", "drops", DROP), order="doc_id")
        entry = publish_table(run.store, unstructured(drops), self.name, self.UNIT)
        run.commit(self.name, self.UNIT, {"drops": entry}, {"drops": len(drops)})


@functools.lru_cache(maxsize=1)
def exact_drops_of(run: Run) -> npt.NDArray[Any]:
    """Return all exact drops, a ``DROP`` array sorted by doc_id, loaded once per process and run."""
    entry = run.folder("exact").require(DriverPass.UNIT).files["drops"]
    return structured(read_table(run.store, entry), DROP)
