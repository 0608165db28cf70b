"""What the passes over keys share: keys that are alive, and their way through a shuffle by ranges of a hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam.dofn import Step
from pipelines.passes.decide import cut_mask, cuts_of
from pipelines.tables import read_table, structured
from pipelines.workspace import Run
from shards.store import FileEntry

PIECE_BYTES = 4 << 20
"""Largest element of a shuffle; real runners refuse those over 10 MB."""


def range_names(key_bytes: int, range_bytes: int) -> list[str]:
    """Return the names of as many ranges as keep each under ``range_bytes``; one at least."""
    return [f"{index:05d}" for index in range(max(1, -(-key_bytes // range_bytes)))]


def range_of(hashes: npt.NDArray[np.uint64], ranges: int) -> npt.NDArray[np.int64]:
    """Return the range, int64 of shape (n,), of 64-bit hashes: multiply-shift on their upper half, for any number."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def pieces(
    keys: npt.NDArray[Any], where: npt.NDArray[np.int64], wanted: Sequence[int], *, everywhere: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield (range, bytes), the elements of a shuffle, of the keys that ``where`` puts into the ranges ``wanted``.

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
    """Return how many documents the judges kept."""
    return sum(unit["files"]["keys"]["rows"] for unit in run.manifest("judge")["units"])


def split_names(run: Run) -> list[str]:
    """Return the judged splits, in order."""
    return [unit["unit"] for unit in run.manifest("judge")["units"]]


def alive_keys(run: Run, split: str, columns: Sequence[str]) -> pa.Table:
    """Return ``columns`` of the keys of a split's documents that no judge and no cut dropped, in doc_id order."""
    wanted = dict.fromkeys([*columns, "language", "perplexity"])
    table = read_table(run.store, run.folder("judge").require(split).files["keys"], wanted)
    plain, chaotic = cut_mask(table, cuts_of(run))
    return table.filter(pa.array(~(plain | chaotic))).select(list(columns))


class KeysBySplit(Step):
    """Gives (range, bytes) of the keys of a split, for the ranges that a pipeline is to do."""

    hashed: ClassVar[str]
    """The field of a key whose hash chooses its range."""

    def __init__(self, run: Run, ranges: int, wanted: Sequence[str], first: str) -> None:
        self._run, self._ranges, self._wanted, self._first = run, ranges, [int(name) for name in wanted], first

    def keys(self, split: str) -> npt.NDArray[Any]:
        """Return the keys of a split, a structured array of shape (n,)."""
        raise NotImplementedError("a pass says what its keys are")

    def work(self, split: str) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces of a split's keys."""
        keys = self.keys(split)
        where = range_of(keys[self.hashed], self._ranges)
        yield from pieces(keys, where, self._wanted, everywhere=self._first == split)


def merged(run: Run, name: str, kind: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return one kind of table of all units of a finished pass, concatenated, as a structured array of ``dtype``."""
    entries = [FileEntry(**unit["files"][kind]) for unit in run.manifest(name)["units"]]
    return np.concatenate([np.empty(0, dtype), *(structured(read_table(run.store, entry), dtype) for entry in entries)])


def is_in(ids: npt.NDArray[np.int64], ordered: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which of ``ids``, shape (n,), are in ``ordered``, a sorted array: by binary search, copying neither."""
    if not len(ordered):
        return np.zeros(len(ids), np.bool_)
    place = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    return np.asarray(ordered[place] == ids)
