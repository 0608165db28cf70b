"""What the file system said of each source when the folder last saw it: lets planning skip what has not been touched.

This is not part of any output: times differ where bytes are the same. Without it, or where it is damaged, sources that
were read before are hashed again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from pipelines.planning.probe import Glance
from shards.store import Store

SEEN_FILE: Final = "plan/seen.arrow"
_HASH: Final = b"headrace.xxh3_128"
_COLUMNS: Final = ("index", *Glance._fields)

Int64s = npt.NDArray[np.int64]


class Seen:
    """Glances by the source index of each file's first row.

    Args:
        first: source indices, int64, ascending.
        glances: the values of ``Glance``, int64 of shape (files, 4).
    """

    def __init__(self, first: Int64s | None = None, glances: Int64s | None = None) -> None:
        self.first = np.empty(0, np.int64) if first is None else first
        self.glances = np.empty((0, len(Glance._fields)), np.int64) if glances is None else glances

    def untouched(self, first: Int64s, glances: Int64s) -> npt.NDArray[np.bool_]:
        """Return which of these files are as they were seen; one of which no time is known is taken to be."""
        same: npt.NDArray[np.bool_] = np.all(glances[:, 1:] < 0, axis=1)
        if len(self.first):
            at = np.minimum(np.searchsorted(self.first, first), len(self.first) - 1)
            same |= (self.first[at] == first) & np.all(self.glances[at] == glances, axis=1)
        return same

    @classmethod
    def load(cls, store: Store) -> Seen:
        """Return what was saved, nothing where that is missing or damaged."""
        if not store.exists(SEEN_FILE):
            return cls()
        try:
            with pa.ipc.open_file(pa.py_buffer(store.read_bytes(SEEN_FILE))) as reader:
                table = reader.read_all()
            columns = np.stack([table.column(name).to_numpy() for name in _COLUMNS], axis=1)
        except (pa.ArrowException, OSError, KeyError, ValueError):
            return cls()
        if columns.dtype != np.int64 or (table.schema.metadata or {}).get(_HASH) != _hash_of(columns):
            return cls()
        return cls(columns[:, 0], columns[:, 1:])

    def save(self, store: Store) -> None:
        """Save, in place of what was saved before."""
        columns = np.column_stack([self.first, self.glances])
        arrays = [pa.array(np.ascontiguousarray(columns[:, at])) for at in range(len(_COLUMNS))]
        table = pa.Table.from_arrays(arrays, list(_COLUMNS)).replace_schema_metadata({_HASH: _hash_of(columns)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        data = bytes(sink.getvalue())
        if not store.exists(SEEN_FILE) or store.read_bytes(SEEN_FILE) != data:
            store.write_bytes(SEEN_FILE, data)


def _hash_of(columns: Int64s) -> bytes:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(columns, "<i8").tobytes()).encode()
