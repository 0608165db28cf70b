"""A few of a split's dropped texts for each reason, chosen by hash, for people to read."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.text.hashing import splitmix64

SAMPLES_PER_REASON: Final = 10
SAMPLE_CHARS: Final = 4_000


class Samples:
    """Keeps, for each (stage, reason), the dropped documents with the smallest hashes of doc_id: an arbitrary few."""

    SCHEMA = pa.schema(
        [
            ("doc_id", pa.int64()),
            ("dropped_by", pa.string()),
            ("reason", pa.string()),
            ("value", pa.float64()),
            ("url", pa.string()),
            ("text", pa.string()),
        ]
    )

    def __init__(self, per_reason: int = SAMPLES_PER_REASON) -> None:
        self._limit = per_reason
        self._heaps: dict[tuple[str, str], list[tuple[int, int, dict[str, Any]]]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Consider a batch's dropped rows that still have a text."""
        with_text = pc.and_(pc.is_valid(batch.column("dropped_by")), pc.is_valid(batch.column("text")))
        rows = np.flatnonzero(with_text.to_numpy(zero_copy_only=False))
        hashes = splitmix64(batch.column("doc_id").to_numpy().astype(np.uint64))
        for row in rows.tolist():
            self._offer(batch, row, int(hashes[row]))

    def _offer(self, batch: pa.RecordBatch, row: int, key: int) -> None:
        reason = (batch.column("dropped_by")[row].as_py(), batch.column("reason")[row].as_py())
        heap = self._heaps.setdefault(reason, [])
        if len(heap) >= self._limit and -key <= heap[0][0]:
            return
        found = {name: batch.column(name)[row].as_py() for name in self.SCHEMA.names}
        found["text"] = found["text"][:SAMPLE_CHARS]
        entry = (-key, found["doc_id"], found)
        if len(heap) < self._limit:
            heapq.heappush(heap, entry)
        else:
            heapq.heapreplace(heap, entry)

    def table(self) -> pa.Table:
        """Return the samples, by stage, reason and hash."""
        rows: Iterable[dict[str, Any]] = (
            found for reason in sorted(self._heaps) for _, _, found in sorted(self._heaps[reason], key=_by_hash)
        )
        return pa.Table.from_pylist(list(rows), schema=self.SCHEMA)


def _by_hash(entry: tuple[int, int, dict[str, Any]]) -> int:
    return -entry[0]
