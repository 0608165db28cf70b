"""What the passes over keys share: the keys of documents still alive, and the shuffle of them by ranges of a hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam import meter
from pipelines.beam.base import Inputs
from pipelines.beam.dofn import Step
from pipelines.beam.work_list import Output, Unit
from pipelines.planning.labels import Labelling
from pipelines.tables import is_in, read_table, structured
from pipelines.workspace import Job
from shards.store import FileEntry, Store

PIECE_BYTES = 4 << 20
"""Largest element of a shuffle; real runners refuse those over 10 MB."""


def range_names(key_bytes: int, range_bytes: int) -> list[str]:
    """Return the names of the ranges, at least one, enough to keep each under ``range_bytes``."""
    return [f"{index:05d}" for index in range(max(1, -(-key_bytes // range_bytes)))]


def range_of(hashes: npt.NDArray[np.uint64], ranges: int) -> npt.NDArray[np.int64]:
    """Return the range, int64 of shape (n,), of 64-bit hashes: multiply-shift on their upper half."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def spans_of(ranges: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Return ascending ranges as (begin, end) runs of consecutive ones: a graph may name 10^6 ranges."""
    spans: list[tuple[int, int]] = []
    for index in map(int, ranges):
        if spans and spans[-1][1] == index:
            spans[-1] = (spans[-1][0], index + 1)
        else:
            spans.append((index, index + 1))
    return tuple(spans)


def pieces(
    keys: npt.NDArray[Any], where: npt.NDArray[np.int64], wanted: Iterable[int], *, everywhere: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield the keys that ``where`` puts into the ranges ``wanted`` as (range, bytes), the elements of a shuffle.

    No element is over 4 MB, since real runners limit their size. A range without keys must still get a marker, so one
    split emits a piece for every range, an empty one where it has no key.

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


class OverKeys(Protocol):
    """A pass over keys."""

    @property
    def keys(self) -> Output:
        """The keys, by split."""

    @property
    def late(self) -> Output | None:
        """The marks laid over what judging found, where the recipe's limits ask for any."""

    @property
    def labels(self) -> Labelling:
        """The priorities, which are joined from the plan."""


def alive_keys(work: OverKeys, store: Store, split: Unit, columns: Sequence[str]) -> pa.Table:
    """Return ``columns`` of the keys of a split's documents that no limit dropped, early or late, in doc_id order."""
    wanted = dict.fromkeys([*columns, "doc_id", "source_index"])
    table = read_table(store, split.file(work.keys), wanted)
    if work.late is not None:
        gone = read_table(store, split.file(work.late), ["doc_id"]).column("doc_id").to_numpy()
        table = table.filter(pa.array(~is_in(table.column("doc_id").to_numpy(), gone)))
    if "priority" in columns:
        table = work.labels.labels(split.detail["sources"]).join(table, ["priority"])
    return table.select(list(columns))


class KeysBySplit(Step):
    """Emits (range, bytes) of the keys of a split, for the ranges that a pipeline is to make."""

    hashed: ClassVar[str]
    """The field of a key whose hash chooses its range."""

    def __init__(self, job: Job, wanted: Sequence[str]) -> None:
        self.job, self._wanted = job, spans_of(wanted)

    def keys(self, split: Unit) -> npt.NDArray[Any]:
        """Return the keys of a split, a structured array of shape (n,)."""
        raise NotImplementedError("each pass defines its own keys")

    def work(self, split: Unit) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces of a split's keys."""
        keys = self.keys(split)
        where = range_of(keys[self.hashed], split.detail["ranges"])
        meter.note(rows=len(keys), nbytes=keys.nbytes)
        wanted = (index for begin, end in self._wanted for index in range(begin, end))
        yield from pieces(keys, where, wanted, everywhere=split.detail["everywhere"])
        # The cost of finding a split's keys belongs to no single range. A local run pays it once for every few ranges.
        name = f"{split.name}-{self._wanted[0][0]:05d}"
        meter.commit(self.job.store, self.job.pass_name, name, self.job.digest, is_shared=True)


def splits(inputs: Inputs, keys: Output, ranges: int) -> Iterator[Unit]:
    """Yield the splits with every input that a pass over keys declares; the first emits a piece for every range."""
    for position, name in enumerate(inputs.units(keys)):
        detail = {"ranges": ranges, "everywhere": position == 0, "sources": inputs.sources(name)}
        yield Unit(name, inputs.of_unit(name), detail)


def merged(store: Store, entries: Iterable[FileEntry], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return tables of one kind, concatenated, as a structured array of ``dtype``."""
    return np.concatenate([np.empty(0, dtype), *(structured(read_table(store, entry), dtype) for entry in entries)])
