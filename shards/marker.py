"""Markers: a unit of a pass is finished, with these files, and this is what it counted.

A marker is an Arrow table of one row, so that a manifest is nothing but its units' markers one after another. Small
tables of a unit (counts, histograms) are columns of it, each a list of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from shards.sealed import canonical
from shards.store import FileEntry

_FILE: Final = pa.struct(
    [
        ("kind", pa.string()),
        ("path", pa.string()),
        ("sha256", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
    ]
)
COLUMNS: Final = pa.schema(
    [
        pa.field("unit", pa.string(), nullable=False),
        pa.field("files", pa.list_(_FILE), nullable=False),
        # Single values, as canonical JSON.
        pa.field("statistics", pa.string(), nullable=False),
    ]
)
"""The columns of every marker; a pass's tables follow them."""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True)
class Marker:
    """A finished unit: its files by kind, its statistics (JSON-able), and its small tables by name."""

    unit: str
    files: Mapping[str, FileEntry]
    statistics: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def to_table(self) -> pa.Table:
        """Return the marker as a table of one row."""
        files = [{"kind": kind, **asdict(entry)} for kind, entry in sorted(self.files.items())]
        said = canonical(self.statistics)
        names = list(COLUMNS) + [pa.field(name, _list_of(table.schema)) for name, table in sorted(self.tables.items())]
        columns = [pa.array([self.unit]), pa.array([files], COLUMNS.field("files").type), pa.array([said])]
        columns += [_one_row(table) for _, table in sorted(self.tables.items())]
        return pa.Table.from_arrays(columns, schema=pa.schema(names))


def _list_of(schema: pa.Schema) -> pa.DataType:
    return pa.list_(pa.struct(list(schema)))


def _one_row(table: pa.Table) -> pa.Array:
    rows = pa.array(table.to_pylist(), pa.struct(list(table.schema)))
    return pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)


def markers_in(table: pa.Table) -> Iterator[Marker]:
    """Yield the markers of a table, without their small tables."""
    rows = (table.column(name).to_pylist() for name in COLUMNS.names)
    for unit, files, statistics in zip(*rows, strict=True):
        entries = {file["kind"]: FileEntry(file["path"], file["sha256"], file["size"], file["rows"]) for file in files}
        yield Marker(unit, entries, json.loads(statistics))


def small_table(table: pa.Table, name: str) -> pa.Table:
    """Return one small table of all markers of a table, with the column ``unit`` before its own."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    lengths = np.diff(np.asarray(column.offsets))
    owners = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    rows = column.flatten()
    units = table.column("unit").combine_chunks().take(owners)
    return pa.table([units, *rows.flatten()], names=["unit", *(f.name for f in rows.type)])


def to_bytes(table: pa.Table) -> bytes:
    """Return a table of markers as an Arrow IPC file of one batch: equal rows give equal bytes, wherever they lay."""
    # take() leaves neither slices nor validity bitmaps behind that depend on how the rows came together.
    clean = table.combine_chunks().take(pa.array(np.arange(table.num_rows)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, clean.schema, options=_COMPRESSED) as writer:
        for batch in clean.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def from_bytes(data: bytes) -> pa.Table:
    """Return the table of markers in an Arrow IPC file.

    Raises:
        pa.ArrowInvalid: if it is none.
    """
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        return reader.read_all()
