"""Near duplicates: candidate pairs from bands, their exact Jaccard, and the documents that stay.

Documents are processed in (priority, doc_id) order, smallest first. One is removed if and only if it reaches the
threshold with a document that stays, so every removal has a kept, verified witness, and chains of ever less similar
documents do not pull each other out. The result depends on the set of keys alone, not on their order or chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stages.jit import argument, kernel

Structured: TypeAlias = npt.NDArray[np.void]
Int64s: TypeAlias = npt.NDArray[np.int64]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Float64s: TypeAlias = npt.NDArray[np.float64]
PriorityOf: TypeAlias = tuple[Int64s, npt.NDArray[np.int32]]

BAND_KEY: Final = np.dtype([("band", "<u2"), ("key", "<u8"), ("priority", "<i4"), ("doc_id", "<i8")])
"""One band of one document, with what orders the document among its duplicates."""

PAIR: Final = np.dtype([("a", "<i8"), ("b", "<i8")])
"""Two doc_ids; ``a`` comes before ``b`` in (priority, doc_id) order, so ``b`` is the one that may be removed."""

REMOVAL: Final = np.dtype([("doc_id", "<i8"), ("witness", "<i8"), ("jaccard", "<f8")])
"""A document to remove, a kept one that it resembles, and their Jaccard rounded to 1e-4."""

SCORE_STEPS: Final = 10_000
"""Scores are compared as whole multiples of 1e-4."""


def near_keys(keys: UInt64s, priority: npt.NDArray[np.int32], doc_id: Int64s) -> Structured:
    """Return the keys, ``BAND_KEY`` of shape (n * bands,), of documents with ``band_keys`` of shape (n, bands).

    Leave out documents without shingles: they share all their bands and no content.
    """
    rows, bands = keys.shape
    out = np.empty((rows, bands), BAND_KEY)
    out["band"], out["key"] = np.arange(bands), keys
    out["priority"], out["doc_id"] = np.asarray(priority)[:, None], np.asarray(doc_id)[:, None]
    return out.reshape(-1)


def candidate_pairs(chunks: Sequence[npt.NDArray[Any]], all_pairs_up_to: int = 32, star: int = 16) -> Structured:
    """Return the pairs of documents that share a band.

    A bucket of up to ``all_pairs_up_to`` documents yields all its pairs; a larger one pairs each document with the
    first ``star`` in (priority, doc_id) order, which are those that would stay. So there are at most
    ``max(star, (all_pairs_up_to - 1) / 2)`` pairs per key.

    Args:
        chunks: arrays of ``BAND_KEY``, of fewer than 2^32 documents; a document has one priority throughout.

    Returns:
        ``PAIR``, ascending, each once.
    """
    table = np.concatenate([np.empty(0, BAND_KEY), *chunks])
    doc_ids, priorities = _documents(table["doc_id"], table["priority"])
    order = np.lexsort((doc_ids, priorities))
    rank_of = np.empty(len(order), np.uint64)
    rank_of[order] = np.arange(len(order))
    rank = rank_of[np.searchsorted(doc_ids, table["doc_id"])]
    bucket = np.lexsort((rank, table["key"], table["band"]))
    band, key, rank = table["band"][bucket], table["key"][bucket], rank[bucket]
    codes = np.empty(0, np.uint64)
    # One band at a time: near duplicates share most bands, so all at once would hold each pair many times.
    for start, end in itertools.pairwise([*np.flatnonzero(_starts(band)).tolist(), len(band)]):
        codes = np.concatenate([codes, _band_pairs(key[start:end], rank[start:end], all_pairs_up_to, star)])
        # Sorting 64-bit integers is vectorised; np.unique hashes them first and takes many times as long.
        codes.sort()
        codes = codes[_starts(codes)]
    by_rank = doc_ids[order]
    pairs = np.empty(len(codes), PAIR)
    pairs["a"], pairs["b"] = by_rank[codes >> np.uint64(32)], by_rank[codes & np.uint64(0xFFFFFFFF)]
    return pairs[np.lexsort((pairs["b"], pairs["a"]))]


def _starts(*ascending: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a row differs from the one before, bool of shape (n,)."""
    starts = np.ones(len(ascending[0]), np.bool_)
    starts[1:] = False
    for column in ascending:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def _band_pairs(key: UInt64s, rank: UInt64s, all_pairs_up_to: int, star: int) -> UInt64s:
    """Return the pairs in the buckets of one band, whose rows are in order of (key, rank)."""
    once = _starts(key, rank)
    key, rank = key[once], rank[once]
    bounds = np.append(np.flatnonzero(_starts(key)), len(key))
    return _bucket_pairs(bounds, rank, all_pairs_up_to, star)


def _documents(doc_id: Int64s, priority: npt.NDArray[np.int32]) -> PriorityOf:
    """Return each document once, ascending, with its priority: the smallest if they differ."""
    order = np.lexsort((priority, doc_id))
    doc_id, priority = doc_id[order], priority[order]
    first = _starts(doc_id)
    return doc_id[first], priority[first]


@kernel
def _bucket_pairs(bounds: Int64s, rank: UInt64s, all_pairs_up_to: int, star: int) -> UInt64s:
    """Return rank of the earlier << 32 | rank of the later, for all pairs of all buckets."""
    total = 0
    for bucket in range(len(bounds) - 1):
        size = bounds[bucket + 1] - bounds[bucket]
        width = size if size <= all_pairs_up_to else min(star, size)
        total += width * (width - 1) // 2 + (size - width) * width
    codes = np.empty(total, np.uint64)
    count = 0
    for bucket in range(len(bounds) - 1):
        start, end = bounds[bucket], bounds[bucket + 1]
        width = end - start if end - start <= all_pairs_up_to else min(star, end - start)
        for one in range(start, start + width):
            for other in range(one + 1, end):
                codes[count] = rank[one] << np.uint64(32) | rank[other]
                count += 1
    return codes


def jaccard_of_pairs(pairs: npt.NDArray[Any], doc_ids: Int64s, offsets: Int64s, hashes: UInt64s) -> Float64s:
    """Return the exact Jaccard of every pair, float64 of shape (pairs,).

    Args:
        pairs: ``PAIR``.
        doc_ids: int64 of shape (n,), ascending.
        offsets: int64 of shape (n + 1,).
        hashes: uint64; ``hashes[offsets[i]:offsets[i + 1]]`` are the shingles of ``doc_ids[i]``, ascending, each once.

    Returns:
        Shared shingles over all shingles; 0 if neither document has any, since nothing says that they are duplicates.

    Raises:
        ValueError: if a document of a pair is not in ``doc_ids``.
    """
    a, b = _indices(doc_ids, pairs["a"]), _indices(doc_ids, pairs["b"])
    jaccard = np.empty(len(pairs), np.float64)
    _jaccard(a, b, argument(offsets), argument(hashes), jaccard)
    return jaccard


def _indices(doc_ids: Int64s, wanted: Int64s) -> Int64s:
    at = np.searchsorted(doc_ids, wanted)
    missing = np.ones(len(wanted), np.bool_)
    inside = at < len(doc_ids)
    missing[inside] = doc_ids[at[inside]] != wanted[inside]
    if missing.any():
        raise ValueError(f"{int(missing.sum())} documents of pairs are unknown, such as {int(wanted[missing][0])}")
    return at


@kernel
def _jaccard(a: Int64s, b: Int64s, offsets: Int64s, hashes: UInt64s, out: Float64s) -> None:
    for pair in range(len(a)):
        one, one_end = offsets[a[pair]], offsets[a[pair] + 1]
        other, other_end = offsets[b[pair]], offsets[b[pair] + 1]
        total = one_end - one + other_end - other
        shared = 0
        while one < one_end and other < other_end:
            left, right = hashes[one], hashes[other]
            # Without a branch on the order, which is as good as random.
            shared += left == right
            one += left <= right
            other += right <= left
        out[pair] = shared / (total - shared) if total else 0.0


def greedy_survivors(
    pairs: npt.NDArray[Any], jaccard: Float64s, priority_of: PriorityOf, threshold: float
) -> Structured:
    """Decide which documents are removed: those that reach ``threshold`` with one that stays.

    Documents are taken in (priority, doc_id) order.

    Args:
        pairs: ``PAIR`` in any order and direction.
        jaccard: float64 of shape (pairs,); compared, like the threshold, after rounding to 1e-4.
        priority_of: doc_ids, int64 ascending, and their priorities, int32; at least the documents of ``pairs``.

    Returns:
        ``REMOVAL``, ascending by doc_id. The witness is the kept document with the greatest Jaccard, of equal ones the
        smallest by (priority, doc_id). No witness is itself removed.

    Raises:
        ValueError: if a document of a pair is not in ``priority_of``.
    """
    doc_ids, priorities = priority_of
    order = np.lexsort((doc_ids, priorities))
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    score = np.rint(np.asarray(jaccard) * SCORE_STEPS).astype(np.int64)
    a, b = rank_of[_indices(doc_ids, pairs["a"])], rank_of[_indices(doc_ids, pairs["b"])]
    near = (score >= round(threshold * SCORE_STEPS)) & (a != b)
    earlier, later, score = np.minimum(a, b)[near], np.maximum(a, b)[near], score[near]
    # The best witness of each document first, so that the first kept one decides.
    sequence = np.lexsort((earlier, -score, later))
    witness = np.full(len(order), -1)
    found = np.zeros(len(order), np.int64)
    _greedy(earlier[sequence], later[sequence], score[sequence], witness, found)
    removed = np.flatnonzero(witness >= 0)
    removals = np.empty(len(removed), REMOVAL)
    removals["doc_id"], removals["witness"] = doc_ids[order[removed]], doc_ids[order[witness[removed]]]
    removals["jaccard"] = found[removed] / SCORE_STEPS
    return removals[np.argsort(removals["doc_id"])]


@kernel
def _greedy(earlier: Int64s, later: Int64s, score: Int64s, witness: Int64s, found: Int64s) -> None:
    """Walk edges by the rank of the later document: earlier documents have been decided by then."""
    for edge in range(len(later)):
        if witness[later[edge]] < 0 and witness[earlier[edge]] < 0:
            witness[later[edge]] = earlier[edge]
            found[later[edge]] = score[edge]
