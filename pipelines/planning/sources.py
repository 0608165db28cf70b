"""The source table of a run's folder: one row for each file, or for each span of a large one.

It is append-only, and a row's number is its source_index, so doc_ids stay true when files are added or removed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.planning.places import key_of

MAX_SOURCES: Final = 1 << 31
"""The upper half of a doc_id has no room for more."""

_TAKEN: Final = 4_096

SOURCES: Final = pa.schema(
    [
        pa.field("index", pa.int32(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("begin", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        # Of the whole file, as is the checksum.
        pa.field("size", pa.int64(), nullable=False),
        pa.field("checksum", pa.binary(16), nullable=False),
        # The format that the recipe declared when a file was cut into spans; null for a whole file.
        pa.field("cut_as", pa.string()),
    ]
)


@dataclass(frozen=True)
class PlannedSource:
    """What is read as one source: a file, or a span of it. Plain values, in the order of the fields.

    Attributes:
        index: row of the source table, the upper half of every doc_id.
        path: the file, relative to the recipe's folder, absolute or a URI.
        begin: first byte of the span.
        end: byte after the span; a whole file is 0 to its size.
        size: bytes of the whole file.
        checksum: ``probe_checksum`` of the whole file.
        settings: position of its ``[[sources]]`` table in the recipe.
    """

    index: int
    path: str
    begin: int
    end: int
    size: int
    checksum: str
    settings: int

    @property
    def span_bytes(self) -> int:
        """Bytes of input."""
        return self.end - self.begin

    @property
    def span(self) -> tuple[int, int] | None:
        """(begin, end) in bytes, None for a whole file."""
        return None if (self.begin, self.end) == (0, self.size) else (self.begin, self.end)


@dataclass(frozen=True)
class KnownFiles:
    """The files of a source table: a file's rows follow one another, the first of them begins at byte 0.

    Attributes:
        first: number of each file's first row, int64, ascending.
        rows: how many rows it has, int64.
        paths: as the table has them.
    """

    first: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    paths: pa.Array

    def __len__(self) -> int:
        return len(self.first)


class SourceTable:
    """Every source that a run's folder knows, in columns (``SOURCES``)."""

    def __init__(self, table: pa.Table | None = None) -> None:
        self.table = (SOURCES.empty_table() if table is None else table).combine_chunks()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceTable) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> Any:
        """Return a column as one array."""
        column = self.table.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    @functools.cached_property
    def span_bytes(self) -> npt.NDArray[np.int64]:
        """Bytes of input of every row."""
        found: npt.NDArray[np.int64] = self.column("end").to_numpy() - self.column("begin").to_numpy()
        return found

    def with_rows(self, table: pa.Table) -> SourceTable:
        """Return the table with more rows after its own."""
        return SourceTable(pa.concat_tables([self.table, table]))

    def begins_with(self, earlier: SourceTable) -> bool:
        """Return whether this table is ``earlier`` with more rows after it, or none."""
        return bool(self.table.slice(0, len(earlier)).equals(earlier.table))

    def files(self) -> KnownFiles:
        """Return the files behind the rows."""
        first = np.flatnonzero(self.column("begin").to_numpy() == 0)
        rows = np.diff(np.append(first, len(self)))
        return KnownFiles(first, rows, self.column("path").take(pa.array(first)))

    def keys(self, base: str) -> pa.Array:
        """Return ``key_of`` every file's path, in the order of ``files``."""
        return pa.array([key_of(path, base) for path in self.files().paths.to_pylist()], pa.string())

    def take(self, rows: npt.NDArray[np.int32], settings: npt.NDArray[np.int32]) -> Iterator[PlannedSource]:
        """Yield sources by their rows, each with the position of its settings."""
        # Many at a time: taking rows costs the same for one as for a thousand. Never all of them.
        for start in range(0, len(rows), _TAKEN):
            picked = self.table.take(pa.array(rows[start : start + _TAKEN]))
            checksums = (checksum.hex() for checksum in picked.column("checksum").to_pylist())
            columns = [picked.column(name).to_pylist() for name in ("index", "path", "begin", "end", "size")]
            yield from map(PlannedSource, *columns, checksums, settings[start : start + _TAKEN].tolist())


def checksums_as_array(checksums: list[str]) -> pa.Array:
    """Return checksums in hexadecimal as a column of the table."""
    return pa.array([bytes.fromhex(checksum) for checksum in checksums], pa.binary(16))


def unlike(column: pa.Array, other: pa.Array) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows in which two columns differ."""
    differs: npt.NDArray[np.bool_] = pc.not_equal(column, other).to_numpy(zero_copy_only=False)
    return np.flatnonzero(differs)
