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
import pyarrow as pa

from pipelines.estimate import RANGES_PER_PIPELINE
from pipelines.passes.base import Builder, DriverPass, Pass
from pipelines.passes.decide import cut_mask, cuts_of
from pipelines.step import Step
from pipelines.tables import one_array, publish_table, read_table, structured, unstructured
from pipelines.workspace import Run
from shards.store import FileEntry
from stages.exact_dedup import DROP, EXACT_KEY, exact_drops, exact_keys

PIECE_BYTES = 4 << 20
"""Largest element of a shuffle; real runners refuse those over 10 MB."""


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
                | "keys" >> beam.ParDo(_Keys(run, ranges, tuple(units), splits[0])).with_output_types(tuple[int, bytes])
                | beam.GroupByKey()
                | "drops" >> beam.ParDo(_Drops(run))
            )

        return build


def range_names(key_bytes: int, range_bytes: int) -> list[str]:
    """Give the names of as many ranges as keep each under ``range_bytes``; one at least."""
    return [f"{index:05d}" for index in range(max(1, -(-key_bytes // range_bytes)))]


def range_of(hashes: npt.NDArray[np.uint64], ranges: int) -> npt.NDArray[np.int64]:
    """Give the range, int64 of shape (n,), of 64-bit hashes: multiply-shift on their upper half, for any number."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def pieces(
    keys: npt.NDArray[Any], where: npt.NDArray[np.int64], wanted: Sequence[int], *, everywhere: bool
) -> Iterator[tuple[int, bytes]]:
    """Give (range, bytes), the elements of a shuffle, of the keys that ``where`` puts into the ranges ``wanted``.

    No element is over 4 MB, which real runners ask for. A range without a key must still end in a marker: so one split
    gives a piece ``everywhere``, empty where it has nothing.

    Args:
        keys: structured array of shape (n,).
        where: the range of each key, shape (n,).
        wanted: the ranges to emit.
        everywhere: whether every range of ``wanted`` gets a piece.
    """
    order = np.argsort(where, kind="stable")
    ordered, at = keys[order], where[order]
    step = PIECE_BYTES // keys.dtype.itemsize
    for index in wanted:
        start, end = np.searchsorted(at, [index, index + 1])
        for begin in range(start, end, step):
            yield index, ordered[begin : min(begin + step, end)].tobytes()
        if everywhere and start == end:
            yield index, b""


def documents(run: Run) -> int:
    """Give how many documents the judges kept."""
    return sum(unit["files"]["keys"]["rows"] for unit in run.manifest("judge")["units"])


def split_names(run: Run) -> list[str]:
    """Give the judged splits, in order."""
    return [unit["unit"] for unit in run.manifest("judge")["units"]]


def alive_keys(run: Run, split: str, columns: Sequence[str]) -> pa.Table:
    """Give ``columns`` of the keys of a split's documents that no judge and no cut dropped, in doc_id order."""
    wanted = dict.fromkeys([*columns, "language", "perplexity"])
    table = read_table(run.store, run.folder("judge").require(split).files["keys"], wanted)
    plain, chaotic = cut_mask(table, cuts_of(run))
    return table.filter(pa.array(~(plain | chaotic))).select(list(columns))


class _Keys(Step):
    def __init__(self, run: Run, ranges: int, wanted: tuple[str, ...], first: str) -> None:
        self._run, self._ranges, self._wanted, self._first = run, ranges, [int(name) for name in wanted], first

    def work(self, split: str) -> Iterator[tuple[int, bytes]]:
        table = alive_keys(self._run, split, ["doc_id", "priority", "content_hash"])
        keys = exact_keys(
            one_array(table.column("content_hash")),
            table.column("priority").to_numpy(),
            table.column("doc_id").to_numpy(),
        )
        yield from pieces(keys, range_of(keys["hash_hi"], self._ranges), self._wanted, everywhere=self._first == split)


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
        parts = [
            structured(read_table(run.store, FileEntry(**unit["files"]["drops"])), DROP)
            for unit in run.manifest("exact_ranges")["units"]
        ]
        drops = np.sort(np.concatenate([np.empty(0, DROP), *parts]), order="doc_id")
        entry = publish_table(run.store, unstructured(drops), self.name, self.UNIT)
        run.commit(self.name, self.UNIT, {"drops": entry}, {"drops": len(drops)})


@functools.lru_cache(maxsize=1)
def exact_drops_of(run: Run) -> npt.NDArray[Any]:
    """Give all exact drops, a ``DROP`` array sorted by doc_id, loaded once per process and run."""
    entry = run.folder("exact").require(DriverPass.UNIT).files["drops"]
    return structured(read_table(run.store, entry), DROP)


def is_in(ids: npt.NDArray[np.int64], ordered: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell which of ``ids``, shape (n,), are in ``ordered``, a sorted array: by binary search, copying neither."""
    if not len(ordered):
        return np.zeros(len(ids), np.bool_)
    place = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    return np.asarray(ordered[place] == ids)
