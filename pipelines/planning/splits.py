"""Splits: consecutive sources grouped to about ``split_bytes``, named by what decides the bytes that reading gives."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.planning.labels import LABELS, asks_for_domain
from pipelines.planning.places import file_name
from pipelines.planning.sources import PlannedSource, SourceTable
from pipelines.recipe import Recipe, SourceSettings
from shards.manifest import digest_of

MAX_ROWS: Final = 4_096
"""Sources of a split at most: they travel with it in one element."""

WHERE: Final = ("glob", "list")
"""Settings that say where files are found, and nothing of what reading them gives."""

SPLITS: Final = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("sources", pa.list_(pa.int32()), nullable=False),
        pa.field("settings", pa.list_(pa.int32()), nullable=False),
    ]
)


@dataclass(frozen=True)
class Split:
    """A unit of reading: consecutive sources of about ``split_bytes``."""

    name: str
    sources: tuple[PlannedSource, ...]

    @property
    def size(self) -> int:
        """Bytes of input."""
        return sum(source.span_bytes for source in self.sources)


class Splits(Sequence[Split]):
    """The splits of a run, in columns (``SPLITS``); each is built when it is asked for."""

    def __init__(self, table: pa.Table, sources: SourceTable) -> None:
        self.table = table.combine_chunks()
        self._sources = sources
        lists = self._column("sources")
        self._offsets = np.asarray(lists.offsets)
        self.rows: npt.NDArray[np.int32] = np.asarray(lists.values)
        """Rows of the source table, split by split."""
        self.settings: npt.NDArray[np.int32] = np.asarray(self._column("settings").values)
        """Position of the ``[[sources]]`` table of each of ``rows``."""

    def _column(self, name: str) -> pa.Array:
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, at: int) -> Split: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Split]: ...
    def __getitem__(self, at: int | slice) -> Split | Sequence[Split]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        number = range(len(self))[at]
        inside = slice(*self._offsets[number : number + 2].tolist())
        sources = tuple(self._sources.take(self.rows[inside], self.settings[inside]))
        return Split(self.names[number], sources)

    def __iter__(self) -> Iterator[Split]:
        found = self._sources.take(self.rows, self.settings)
        for name, count in zip(self.names, np.diff(self._offsets).tolist(), strict=True):
            yield Split(name, tuple(islice(found, count)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Splits) and bool(self.table.equals(other.table)) and self._sources == other._sources

    __hash__ = None  # type: ignore[assignment]

    @functools.cached_property
    def names(self) -> list[str]:
        """Names, in order."""
        names: list[str] = self._column("name").to_pylist()
        return names

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Bytes of input of each, in order."""
        sizes: list[int] = self._column("bytes").to_pylist()
        return sizes

    @functools.cached_property
    def of_rows(self) -> npt.NDArray[np.int64]:
        """The number of the split of each of ``rows``."""
        return np.repeat(np.arange(len(self)), np.diff(self._offsets))


def make_splits(
    sources: SourceTable, active: npt.NDArray[np.int32], settings: npt.NDArray[np.int32], recipe: Recipe
) -> Splits:
    """Cut the sources that a run reads into splits.

    Sources that it leaves out keep their place in the grouping, so leaving one out, or in again, changes one split.

    Args:
        sources: every source known to the folder.
        active: rows of those that are read, ascending.
        settings: position of the ``[[sources]]`` table of each.
        recipe: says how large a split is, and what its name depends on.
    """
    groups = _groups(sources.span_bytes, recipe.split_bytes)[active]
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    offsets = np.append(starts, len(active)).astype(np.int32)
    sizes = np.add.reduceat(sources.span_bytes[active], starts) if len(starts) else np.empty(0, np.int64)
    columns = [
        pa.array(_names(sources, active, settings, groups[starts], offsets, recipe), pa.string()),
        pa.array(sizes, pa.int64()),
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(active, pa.int32())),
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(settings, pa.int32())),
    ]
    return Splits(pa.Table.from_arrays(columns, schema=SPLITS), sources)


def _groups(span_bytes: npt.NDArray[np.int64], split_bytes: int) -> npt.NDArray[np.int64]:
    """Return the group of every row: a new one begins where the next row would make it too large, or too long."""
    group = size = count = 0
    groups = np.empty(len(span_bytes), np.int64)
    for row, more in enumerate(span_bytes.tolist()):
        if count and (size + more > split_bytes or count == MAX_ROWS):
            group, size, count = group + 1, 0, 0
        groups[row] = group
        size += more
        count += 1
    return groups


def reading_settings(settings: SourceSettings, *, with_domain: bool) -> str:
    """Return the digest of those settings that decide the rows that reading a source gives."""
    labels = [name for name in LABELS if name != "domain" or not with_domain]
    return digest_of(settings.model_dump(mode="json", exclude={*WHERE, *labels}))[:16]


def _names(
    sources: SourceTable,
    active: npt.NDArray[np.int32],
    settings: npt.NDArray[np.int32],
    positions: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int32],
    recipe: Recipe,
) -> list[str]:
    with_domain = asks_for_domain(recipe)
    read_as = [reading_settings(table, with_domain=with_domain) for table in recipe.sources]
    names = []
    found = sources.take(active, settings)
    for position, count in zip(positions.tolist(), np.diff(offsets).tolist(), strict=True):
        # The file's name without its folder: where a corpus lies is not part of what is made from it.
        content = [
            [s.index, file_name(s.path), s.begin, s.end, s.size, s.checksum, read_as[s.settings]]
            for s in islice(found, count)
        ]
        names.append(f"{position:05d}-{digest_of(content)[:8]}")
    return names
