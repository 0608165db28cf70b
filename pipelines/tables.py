"""Arrow tables as files of a pass: written locally, published whole, opened by path."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.files import naming
from shards.store import FileEntry, Store

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class TableFile:
    """An Arrow IPC file in the making, zstd-compressed, batch by batch in bounded memory.

    The schema is the first batch's, without its metadata: which split a batch came from is not part of the bytes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None
        self._writer: Any = None
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch; all must have one schema."""
        batch = batch.replace_schema_metadata(None)
        with naming(self._path):
            if self._writer is None:
                # An own file: closing a writer leaves a file that it opened by name unflushed.
                self._file = pa.OSFile(str(self._path), "wb")
                self._writer = pa.ipc.new_file(self._file, batch.schema, options=_COMPRESSED)
            self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def publish(self, store: Store, folder: str, stem: str) -> FileEntry:
        """Close the file and publish it."""
        if self._writer is None:
            raise AssertionError(f"{folder}/{stem}: a table needs at least one batch, for its schema")
        self.close()
        return store.publish(self._path, folder, stem, self.rows)

    def close(self) -> None:
        """Close the file; once is enough."""
        if self._writer is not None and not self._file.closed:
            with naming(self._path):
                self._writer.close()
                self._file.close()


def publish_table(store: Store, table: pa.Table, folder: str, stem: str) -> FileEntry:
    """Publish a whole table as one file."""
    with store.scratch() as scratch:
        file = TableFile(scratch / "table.arrow")
        for batch in table.combine_chunks().to_batches() or [_empty_batch(table.schema)]:
            file.write(batch)
        return file.publish(store, folder, stem)


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def read_batches(store: Store, entry: FileEntry, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a published table, one at a time, or those in one of ``parts`` equal shares of them."""
    with store.open_checked(entry) as file, pa.ipc.open_file(file) as reader:
        count = reader.num_record_batches
        for index in range(part * count // parts, (part + 1) * count // parts):
            yield reader.get_batch(index)


def read_schema(store: Store, entry: FileEntry) -> pa.Schema:
    """Return the schema of a published table."""
    with store.open_checked(entry) as file, pa.ipc.open_file(file) as reader:
        return reader.schema


def read_table(store: Store, entry: FileEntry, columns: Iterable[str] | None = None) -> pa.Table:
    """Return a published table, or some of its columns."""
    with store.open_checked(entry) as file:
        options = None
        if columns is not None:
            with pa.ipc.open_file(file) as reader:
                schema = reader.schema
            wanted = [schema.get_field_index(name) for name in columns if name in schema.names]
            options = pa.ipc.IpcReadOptions(included_fields=wanted)
            file.seek(0)
        with pa.ipc.open_file(file, options=options) as reader:
            return reader.read_all()


@functools.lru_cache(maxsize=4)
def shared_table(root: str, entry: FileEntry) -> pa.Table:
    """Return a table of the whole run, opened once per process."""
    return read_table(Store(root, repairs=True), entry)


@functools.lru_cache(maxsize=4)
def shared_column(root: str, entry: FileEntry, column: str) -> npt.NDArray[Any]:
    """Return a column of a table of the whole run as a numpy array, opened once per process."""
    return np.asarray(read_table(Store(root, repairs=True), entry, [column]).column(column).to_numpy())


@functools.lru_cache(maxsize=4)
def shared_rows(root: str, entry: FileEntry, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a table of the whole run as a structured array of ``dtype``, opened once per process."""
    return structured(read_table(Store(root, repairs=True), entry), dtype)


def structured(table: pa.Table, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a table's columns as a structured array of ``dtype``, whose fields name the columns."""
    rows = np.empty(table.num_rows, dtype)
    for name in dtype.names or ():
        rows[name] = table.column(name).to_numpy()
    return rows


def unstructured(rows: npt.NDArray[Any]) -> pa.Table:
    """Return a structured array as a table, one column per field."""
    return pa.table({name: pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()})


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a table's column as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    return next(iter(table.combine_chunks().to_batches()), None) or _empty_batch(table.schema)


def group_counts(table: pa.Table, keys: list[str]) -> pa.Table:
    """Return the row counts of a table by ``keys``, sorted by them, with the column ``rows`` after them."""
    counted = table.group_by(keys).aggregate([([], "count_all")]).rename_columns([*keys, "rows"])
    return counted.sort_by([(key, "ascending") for key in keys])


def is_in(ids: npt.NDArray[np.int64], ordered: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which of ``ids``, shape (n,), are in ``ordered``, a sorted array: by binary search, copying neither."""
    if not len(ordered):
        return np.zeros(len(ids), np.bool_)
    place = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    return np.asarray(ordered[place] == ids)
