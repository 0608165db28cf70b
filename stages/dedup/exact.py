"""Exact duplicates: of the documents that share a content hash, the one with the smallest (priority, doc_id) stays.

A two-level Bloom filter scans the keys first, and an exact table holds only its suspects: a false positive costs 32
bytes of memory, never a document. The result depends on the set of keys alone, not on their order or chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.dedup.bloom import TwoLevelBloom
from stages.dedup.order import taken

Structured: TypeAlias = npt.NDArray[np.void]

EXACT_KEY: Final = np.dtype([("hash_hi", "<u8"), ("hash_lo", "<u8"), ("priority", "<i8"), ("doc_id", "<i8")])
"""One document: the halves of its content hash, and what orders it among its duplicates, smallest first."""

DROP: Final = np.dtype([("doc_id", "<i8"), ("witness", "<i8")])
"""A document to drop and the one kept in its place."""


@dataclass(frozen=True)
class ExactStatistics:
    """What the search cost.

    Attributes:
        keys: all keys.
        suspects: those that the Bloom filter could not rule out, and the exact table held.
    """

    keys: int
    suspects: int


def exact_keys(content_hash: pa.Array, priority: npt.NDArray[np.int64], doc_id: npt.NDArray[np.int64]) -> Structured:
    """Return the keys, ``EXACT_KEY`` of shape (n,), of documents with the ``content_hash`` of ``fingerprint_v2``.

    Raises:
        ValueError: if a hash is null or not of 16 bytes.
    """
    if content_hash.null_count or content_hash.type != pa.binary(16):
        raise ValueError(f"{content_hash.null_count} nulls in content hashes of type {content_hash.type}")
    keys = np.empty(len(content_hash), EXACT_KEY)
    raw = np.frombuffer(content_hash.buffers()[1] or b"", ">u8")
    halves = raw[2 * content_hash.offset : 2 * (content_hash.offset + len(content_hash))].reshape(-1, 2)
    keys["hash_hi"], keys["hash_lo"] = halves[:, 0], halves[:, 1]
    keys["priority"], keys["doc_id"] = priority, doc_id
    return keys


def exact_drops(
    chunks: Sequence[npt.NDArray[Any]], false_positive_rate: float = 0.01
) -> tuple[Structured, ExactStatistics]:
    """Find the documents that repeat another.

    Args:
        chunks: arrays of ``EXACT_KEY``, iterated over three times: a lazy sequence may map them from disk each time.
        false_positive_rate: of the Bloom filter, traded against memory: 0.01 takes 2.4 bytes a key, 0.001 takes 3.6.

    Returns:
        ``DROP`` of shape (drops,), ascending by doc_id, whose witnesses are all kept; and statistics.

    Raises:
        UserError: if the rate is not inside (0, 1).
        TypeError: if ``chunks`` is an iterator.
    """
    if isinstance(chunks, Iterator):
        raise TypeError("chunks are iterated over three times: pass a sequence, not an iterator")
    keys = sum(len(chunk) for chunk in chunks)
    bloom = TwoLevelBloom(keys, false_positive_rate)
    for chunk in chunks:
        bloom.add(chunk["hash_hi"], chunk["hash_lo"])
    suspected = [chunk[bloom.suspects(chunk["hash_hi"], chunk["hash_lo"])] for chunk in chunks]
    table = np.concatenate([np.empty(0, EXACT_KEY), *suspected])
    table = table[np.lexsort((table["doc_id"], table["priority"], table["hash_lo"], table["hash_hi"]))]
    starts = np.flatnonzero(_differs(table["hash_hi"]) | _differs(table["hash_lo"]))
    sizes = np.diff(np.append(starts, len(table)))
    survivor = np.repeat(table["doc_id"][starts], sizes)
    # A key that occurs twice, after a retry say, is one document, not a duplicate of itself.
    dropped = np.flatnonzero(table["doc_id"] != survivor)
    drops = np.empty(len(dropped), DROP)
    drops["doc_id"], drops["witness"] = table["doc_id"][dropped], survivor[dropped]
    drops = drops[np.lexsort((drops["witness"], drops["doc_id"]))]
    drops = drops[_differs(drops["doc_id"]) | _differs(drops["witness"])]
    return drops, ExactStatistics(keys, len(table))


def first_copies(keys: npt.NDArray[Any]) -> tuple[Structured, Structured]:
    """Keep one key of each hash: its first document in (priority, doc_id) order.

    So a hash that a tenth of a crawl has is shuffled once for each split, and not once for each document.

    Args:
        keys: ``EXACT_KEY`` of shape (n,), a document once.

    Returns:
        The keys that are left, in the order of their hashes; and ``DROP`` of the others, ascending by doc_id, each with
        the document whose key stands for it.
    """
    ordered = taken(keys, np.lexsort((keys["doc_id"], keys["priority"], keys["hash_lo"], keys["hash_hi"])))
    is_first = _differs(ordered["hash_hi"]) | _differs(ordered["hash_lo"])
    stands = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    rest = np.flatnonzero(~is_first)
    copies = np.empty(len(rest), DROP)
    copies["doc_id"], copies["witness"] = ordered["doc_id"][rest], ordered["doc_id"][stands[rest]]
    return ordered[is_first], copies[np.argsort(copies["doc_id"])]


def _differs(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a value differs from the one before, bool of shape (n,); True for the first."""
    differs = np.ones(len(column), np.bool_)
    differs[1:] = column[1:] != column[:-1]
    return differs
