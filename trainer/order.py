"""The order in which an epoch reads the documents of a domain: a pure function of seed, domain and epoch."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from shards.permute import Permutation, derive_key

Int64Array = npt.NDArray[np.int64]

DEFAULT_WINDOW_SHARDS: Final = 128
"""Shards of a window where no number is given: the files of three domains' windows stay open together.

At the usual size of a shard these are millions of documents, taken from all over the domain, because the shards are
permuted first. A domain with fewer shards is one window, so its order is fully global.
"""


class DocumentOrder:
    """Shards in permuted order, cut into windows of ``window_shards``; documents are permuted within each window.

    Only the shards of a window have to be open, or local, at once. Memory grows with the shards, not with the
    documents.

    Args:
        shard_rows: int64 of shape (shards,): documents in each shard.
        key: 64-bit key of the order, from ``epoch_key``.
        window_shards: shards per window; ``DEFAULT_WINDOW_SHARDS`` by default.
    """

    def __init__(self, shard_rows: Int64Array, key: int, window_shards: int | None = None) -> None:
        count = len(shard_rows)
        window = min(window_shards or DEFAULT_WINDOW_SHARDS, count) or 1
        self._shards = Permutation(count, derive_key("shards", key))(np.arange(count))
        rows = shard_rows[self._shards]
        # Documents before each shard: in the numbering of the domain, and in the permuted order of shards.
        self._first = (np.cumsum(shard_rows) - shard_rows)[self._shards]
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])
        self._window_start = self._before[np.append(np.arange(0, count, window), count)]
        self._key = key
        self.documents = int(self._before[-1])

    def __call__(self, start: int, stop: int) -> Int64Array:
        """Return the documents at positions ``start`` to ``stop`` (excluded), int64 of shape (stop - start,).

        Raises:
            IndexError: if the range reaches beyond the domain.
        """
        if not 0 <= start <= stop <= self.documents:
            raise IndexError(f"positions {start} to {stop} are not within the {self.documents} documents")
        parts = [np.empty(0, np.int64)]
        while start < stop:
            window = int(np.searchsorted(self._window_start, start, side="right")) - 1
            begin, end = int(self._window_start[window]), int(self._window_start[window + 1])
            until = min(stop, end)
            inside = Permutation(end - begin, derive_key("window", self._key, window))
            places = begin + inside(np.arange(start - begin, until - begin))
            shard = np.searchsorted(self._before, places, side="right") - 1
            parts.append(self._first[shard] + places - self._before[shard])
            start = until
        return np.concatenate(parts)


def epoch_key(seed: int, domain: str, epoch: int) -> int:
    """Return the key of a domain's order in an epoch. It does not depend on the other domains of the run."""
    return derive_key("order", seed, domain, epoch)
