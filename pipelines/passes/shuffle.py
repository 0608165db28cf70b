"""Shuffles through files: every unit of one pass gives blocks to every unit of the next, in pieces of about 1 MB.

Of D bytes, the square root of D over ``piece_bytes`` units are given equal shares by as many others: so there is one
piece for each megabyte, however large the corpus, and a unit's share, which grows with the square root of the corpus,
is dealt into ranges that fit in memory on the worker's own disk. So a shuffle needs the same memory for any corpus and
on any runner, and a restart repeats no finished unit of either pass.

Two keys are shuffled by: a 64-bit hash, whose upper bits choose the unit, and a document's id, of which the splits, and
so the groups of consecutive splits, hold ascending ranges.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.beam.base import Inputs
from pipelines.beam.work_list import Output
from pipelines.passes.blocks import BUFFER_BYTES, Blocks, read_block
from pipelines.plan import Plan
from shards.sealed import digest_of
from shards.store import FileEntry, Store

MIN_SPLIT_GROUPS: Final = 64
"""Groups of splits at least, if there are so many splits: enough for as many workers."""

ROW_BYTES: Final = 400
"""Of a document in the largest shuffle of keys: 16 bands of 24 bytes."""

INPUT_BYTES_PER_DOCUMENT: Final = 2_000


def shares(nbytes: int, piece_bytes: int) -> int:
    """Return among how many units so many bytes are dealt, for pieces of about ``piece_bytes`` from as many others."""
    return max(1, math.isqrt(max(0, -(-nbytes // piece_bytes) - 1)) + 1)


def range_of(hashes: npt.NDArray[np.uint64], ranges: int) -> npt.NDArray[np.int64]:
    """Return the range, int64 of shape (n,), of 64-bit hashes: multiply-shift on their upper half.

    Ranges of a multiple of as many lie inside these.
    """
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def names_of(count: int) -> list[str]:
    """Return the names of so many units, in order."""
    return [f"{index:05d}" for index in range(count)]


@dataclass(frozen=True)
class SplitGroup:
    """Consecutive splits that are one unit of a pass.

    Attributes:
        name: the unit's.
        splits: their names.
        first_sources: the first source of each: an earlier split has no source of this index or a higher one.
    """

    name: str
    splits: tuple[str, ...]
    first_sources: tuple[int, ...]


@dataclass(frozen=True)
class SplitGroups:
    """The splits of a run in groups, the same for all passes that shuffle by them.

    Only the driver needs the groups: pickled, this is no more than the digest.

    Attributes:
        digest: of which splits are in which group.
        groups: in order.
    """

    digest: str
    groups: tuple[SplitGroup, ...] = ()

    @classmethod
    def of(cls, plan: Plan, piece_bytes: int) -> SplitGroups:
        """Group the splits of a plan, about evenly by their bytes.

        Args:
            plan: the splits.
            piece_bytes: what a unit should give to a group, if each document had a row in the shuffle.
        """
        splits = plan.splits
        # An empty split weighs something too, or all splits of a run without text would be one group.
        sizes = np.array(splits.sizes, np.int64) + 1
        rows = int(sizes.sum()) * ROW_BYTES // INPUT_BYTES_PER_DOCUMENT
        most = min(len(sizes), max(MIN_SPLIT_GROUPS, shares(rows, piece_bytes)))
        where = (np.cumsum(sizes) - sizes) * most // max(1, int(sizes.sum()))
        bounds = [*np.flatnonzero(np.diff(where, prepend=-1)).tolist(), len(sizes)]
        firsts = splits.rows[np.flatnonzero(np.diff(splits.of_rows, prepend=-1))].tolist()
        groups = tuple(
            SplitGroup(f"{number:05d}", tuple(splits.names[start:end]), tuple(firsts[start:end]))
            for number, (start, end) in enumerate(itertools.pairwise(bounds))
        )
        return cls(digest_of([group.splits for group in groups]), groups)

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitGroups, (self.digest,)

    @property
    def names(self) -> list[str]:
        """The names of the groups, as units."""
        return [group.name for group in self.groups]

    @property
    def first_sources(self) -> list[int]:
        """The first source of each group."""
        return [group.first_sources[0] for group in self.groups]

    def entries(self, inputs: Inputs, outputs: Iterable[Output | None]) -> list[dict[Output, tuple[FileEntry, ...]]]:
        """Return, for each group, the files of its splits of some outputs that are made by split; None is left out."""
        files = {output: inputs.files(output) for output in outputs if output is not None}
        return [
            {output: tuple(found[split] for split in group.splits) for output, found in files.items()}
            for group in self.groups
        ]


def places_of(doc_ids: npt.NDArray[np.int64], first_sources: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return in which of consecutive splits, or groups of them, documents are: int64 of shape (n,).

    Args:
        doc_ids: int64 of shape (n,).
        first_sources: the first source of each, ascending.
    """
    return np.searchsorted(np.asarray(first_sources, np.int64), doc_ids >> 32, side="right").astype(np.int64) - 1


def rows_of(store: Store, entries: Iterable[FileEntry], block: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return one block of each of some files, concatenated, as a structured array."""
    found = (np.frombuffer(piece, dtype) for piece in pieces_of(store, entries, block))
    return np.concatenate([np.empty(0, dtype), *found])


def pieces_of(store: Store, entries: Iterable[FileEntry], block: int) -> Iterator[bytes]:
    """Yield one block of each of some files, where it is not empty."""
    for entry in entries:
        if entry.rows and (piece := read_block(store, entry, block)):
            yield piece


@contextlib.contextmanager
def blocks_for(store: Store, **counts: int) -> Iterator[list[Blocks]]:
    """Yield blocks in the making, so many of each name, in a scratch folder that goes at the end."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(store.scratch())
        yield [stack.enter_context(Blocks(folder / name, count)) for name, count in counts.items()]


@contextlib.contextmanager
def dealt(
    store: Store, entries: Sequence[FileEntry], group: int, groups: int, dtype: np.dtype[Any], range_bytes: int
) -> Iterator[Iterator[npt.NDArray[Any]]]:
    """Yield the rows of a unit's share of a shuffle by hash, the first field of a row, range by range.

    What does not fit in ``range_bytes`` is dealt into ranges on the worker's disk.

    Args:
        store: the run's.
        entries: the files of all units that give.
        group: the unit that takes, from 0 on.
        groups: how many there are.
        dtype: a structured type.
        range_bytes: about the most bytes of rows that are in memory at once.
    """
    field = (dtype.names or ("",))[0]
    expected = sum(entry.rows for entry in entries) * dtype.itemsize // groups
    ranges = max(1, -(-expected // range_bytes))
    with store.scratch() as folder, Blocks(folder, ranges, min(BUFFER_BYTES, range_bytes)) as blocks:
        for piece in pieces_of(store, entries, group):
            rows = np.frombuffer(piece, dtype)
            blocks.add(rows, range_of(rows[field], groups * ranges) - group * ranges)
        yield (np.frombuffer(b"".join(blocks.pieces(index)), dtype) for index in range(ranges))
