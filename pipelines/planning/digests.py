"""Digests of whole sources: taken when a source is first read, compared whenever it is read again.

A digest is xxh3_128 over the source's bytes, its span only: ``xxhsum -H2`` of a file shows the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.planning import seal
from pipelines.planning.probe import changed
from pipelines.planning.sources import SourceTable, unlike
from shards.store import Store

DIGESTS_INDEX: Final = "plan/digests.json"
DIGESTS: Final = pa.schema(
    [pa.field("source_index", pa.int32(), nullable=False), pa.field("digest", pa.string(), nullable=False)]
)
"""What reading a split hands on: a row for each of its sources, the digest as 32 hexadecimal digits."""

_FORMAT: Final = 1
_KIND: Final = "digests"
_PART_ROWS: Final = 1 << 16
_SAVED: Final = pa.schema(
    [pa.field("source_index", pa.int32(), nullable=False), pa.field("digest", pa.binary(16), nullable=False)]
)


class Digests:
    """The digests that a run's folder knows, by source index."""

    def __init__(self, indices: npt.NDArray[np.int32] | None = None, digests: pa.Array | None = None) -> None:
        self._indices = np.empty(0, np.int32) if indices is None else indices
        self._digests = pa.array([], pa.binary(16)) if digests is None else digests

    def __len__(self) -> int:
        return len(self._indices)

    def known(self, indices: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return for which of these sources a digest is known."""
        return np.isin(indices, self._indices)

    def of(self, indices: Iterable[int]) -> list[str | None]:
        """Return the digest of each of these sources, None where it was never read to its end."""
        asked = np.fromiter(indices, np.int64)
        if not len(self):
            return [None] * len(asked)
        at = np.minimum(np.searchsorted(self._indices, asked), len(self) - 1)
        hit = self._indices[at] == asked
        found = self._digests.take(pa.array(at)).to_pylist()
        return [digest.hex() if known else None for digest, known in zip(found, hit.tolist(), strict=True)]

    def merged(self, found: Iterable[pa.Table], sources: SourceTable, place: str) -> Digests:
        """Return these digests and those of tables as ``DIGESTS``, one for each split that was read.

        Raises:
            UserError: if a source has another digest now than when it was first read.
        """
        table = pa.concat_tables([DIGESTS.empty_table(), *(part.select(DIGESTS.names).cast(DIGESTS) for part in found)])
        indices = table.column("source_index").to_numpy()
        digests = pa.array([bytes.fromhex(text) for text in table.column("digest").to_pylist()], pa.binary(16))
        every = np.concatenate([self._indices, indices])
        values = pa.concat_arrays([self._digests, digests])
        # Stable: of several digests of one source the known one comes first.
        order = np.argsort(every, kind="stable")
        every, values = every[order], values.take(pa.array(order))
        is_first = np.diff(every, prepend=-1) != 0
        first = np.flatnonzero(is_first)
        held = values.take(pa.array(first[np.cumsum(is_first) - 1]))
        for row in unlike(values, held)[:1].tolist():
            path = sources.column("path")[int(every[row])].as_py()
            require_same(held[row].as_py().hex(), values[row].as_py().hex(), path, place)
        return Digests(every[first], values.take(pa.array(first)))

    @classmethod
    def load(cls, store: Store) -> Digests:
        """Return the digests that were saved, none in a new folder.

        Raises:
            IncompleteError: if they are not what was written.
        """
        index = seal.read_sealed(store, DIGESTS_INDEX)
        if index is None:
            return cls()
        table = seal.read_parts(store, index["digests"], _SAVED).combine_chunks()
        column = table.column("digest")
        return cls(table.column("source_index").to_numpy(), column.chunk(0) if column.num_chunks else None)

    def save(self, store: Store) -> None:
        """Save the digests, in place of what was saved before. Only for the one driver of a run."""
        table = pa.Table.from_arrays([pa.array(self._indices, pa.int32()), self._digests], schema=_SAVED)
        parts = (table.slice(start, _PART_ROWS) for start in range(0, len(table), _PART_ROWS))
        entries = seal.write_parts(store, _KIND, parts, twice=True)
        value: Mapping[str, object] = {"format": _FORMAT, "digests": entries}
        seal.write_sealed(store, DIGESTS_INDEX, value)
        seal.delete_others(store, _KIND, entries)


def require_same(expected: str | None, found: str, path: str, place: str) -> None:
    """Compare the digest of a source with the one that is known, if any.

    Args:
        expected: the known digest, None for a source that was never read to its end.
        found: the digest of what was read.
        path: the source, for the message.
        place: the run's folder.

    Raises:
        UserError: if they differ.
    """
    if expected is not None and expected != found:
        raise changed(path, place)
