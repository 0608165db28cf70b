"""Near duplicates: which documents share a bucket, and which of those that do are removed.

A *bucket* holds the documents that share a band key. It is cut where, in order of the sizes of their shingle sets, the
next set is so much larger that no two documents on either side can reach the threshold: shared shingles over all
shingles is at most the smaller size over the larger. That bound is exact, so no pair is lost.

Documents are taken in (priority, doc_id) order, smallest first. Each is compared with the kept ones of its buckets, in
each bucket with the first ``compared_per_key`` of them. It is removed if and only if one of these reaches the
threshold, so every removal has a kept, verified witness, and chains of ever less similar documents do not pull each
other out. The result depends on the set of documents alone, not on their order or chunks, and documents that are not
linked by a chain of buckets do not affect each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stages.dedup.order import order_of, taken
from stages.jit import argument, kernel, subkernel

Structured: TypeAlias = npt.NDArray[np.void]
Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Float64s: TypeAlias = npt.NDArray[np.float64]

BAND_KEY: Final = np.dtype([("key", "<u8"), ("doc_id", "<i8"), ("least", "<u4"), ("most", "<u4")])
"""Documents of one bucket, none of which is cut off from the others: a band key, the smallest doc_id among them, and
the smallest and largest size of their shingle sets."""

LINK: Final = np.dtype([("a", "<i8"), ("b", "<i8")])
"""Two doc_ids that are in one bucket; ``a`` is the smaller."""

PAIR: Final = np.dtype([("a", "<i8"), ("b", "<i8")])
"""Two doc_ids."""

REMOVAL: Final = np.dtype([("doc_id", "<i8"), ("witness", "<i8"), ("jaccard", "<f8")])
"""A document to remove, a kept one that it resembles, and their Jaccard rounded to 1e-4."""

SCORE_STEPS: Final = 10_000
"""Scores are compared as whole multiples of 1e-4."""


def near_keys(keys: UInt64s, doc_id: Int64s, shingles: npt.NDArray[Any]) -> Structured:
    """Return the keys, ``BAND_KEY`` of shape (n * bands,), of documents with ``band_keys`` of shape (n, bands).

    Args:
        keys: uint64 of shape (n, bands).
        doc_id: int64 of shape (n,).
        shingles: sizes of the documents' sets, all above 0: documents without shingles share all bands and no content.
    """
    rows, bands = keys.shape
    out = np.empty((rows, bands), BAND_KEY)
    out["key"], out["doc_id"] = keys, np.asarray(doc_id)[:, None]
    out["least"] = out["most"] = np.asarray(shingles)[:, None]
    return out.reshape(-1)


def linked(chunks: Sequence[npt.NDArray[Any]], threshold: float) -> tuple[Structured, Structured]:
    """Merge the keys of each bucket, cut by size, into one.

    Merging what was merged of parts gives what merging the whole gives: so a key that a tenth of a crawl has is
    shuffled once for each split, and not once for each document.

    Args:
        chunks: arrays of ``BAND_KEY``.
        threshold: the Jaccard from which a document is a duplicate.

    Returns:
        ``BAND_KEY``, one for each part of each bucket, in an order that depends on the set of keys alone; and ``LINK``
        from the smallest doc_id of each part to each other one, ascending, each once.
    """
    table = np.concatenate([np.empty(0, BAND_KEY), *chunks])
    # Sorting one column of 64-bit integers is vectorised. Most keys occur once, and need no more than that.
    keys = np.ascontiguousarray(table["key"])
    order = np.argsort(keys)
    alone = _alone(_starts(keys[order]))
    shared = taken(table, order[~alone])
    shared = taken(shared, np.lexsort((shared["most"], shared["doc_id"], shared["least"], shared["key"])))
    parts = _parts_of(shared["key"], shared["least"], shared["most"], threshold)
    first = np.flatnonzero(_starts(parts))
    merged = taken(shared, first)
    if len(first):
        merged["doc_id"] = np.minimum.reduceat(shared["doc_id"], first)
        merged["most"] = np.maximum.reduceat(shared["most"], first)
    root = merged["doc_id"][parts]
    links = np.empty(len(shared), LINK)
    links["a"], links["b"] = root, shared["doc_id"]
    return np.concatenate([taken(table, order[alone]), merged]), distinct_links(links)


def distinct_links(links: npt.NDArray[Any]) -> Structured:
    """Return links ascending, each once, and none from a document to itself."""
    links = links[links["a"] != links["b"]]
    links = links[np.lexsort((links["b"], links["a"]))]
    return np.asarray(links[_starts(links["a"], links["b"])])


def _starts(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a row differs from the one before, bool of shape (n,)."""
    starts = np.ones(len(columns[0]), np.bool_)
    starts[1:] = False
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def _alone(starts: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which rows differ from the one before and the one behind, given where rows differ from the one before."""
    alone = starts.copy()
    alone[:-1] &= starts[1:]
    return alone


def _steps(threshold: float) -> int:
    return round(threshold * SCORE_STEPS)


def _parts_of(key: UInt64s, least: UInt32s, most: UInt32s, threshold: float) -> Int64s:
    """Return the number of the part of a bucket that each row is in, rows being in order of (key, least)."""
    parts = np.empty(len(key), np.int64)
    _cut(argument(key), argument(least), argument(most), _steps(threshold), parts)
    return parts


@subkernel
def _can_reach(smaller: np.int64, larger: np.int64, steps: int) -> bool:
    """Return whether sets of these sizes can reach the threshold: if one holds all of the other."""
    return bool(np.rint(smaller / larger * 10_000.0) >= steps)


@kernel
def _cut(key: UInt64s, least: UInt32s, most: UInt32s, steps: int, parts: Int64s) -> None:
    part = np.int64(-1)
    largest = np.int64(0)
    for row in range(len(key)):
        is_new = row == 0 or key[row] != key[row - 1]
        if is_new or (np.int64(least[row]) > largest and not _can_reach(largest, np.int64(least[row]), steps)):
            part += 1
            largest = np.int64(0)
        largest = max(largest, np.int64(most[row]))
        parts[row] = part


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


@subkernel
def _shared(hashes: UInt64s, one: int, one_end: int, other: int, other_end: int, misses: int) -> int:
    """Return how many hashes two sets share, or -1 as soon as more than ``misses`` are in one of them alone."""
    shared = 0
    begun = one + other
    while one < one_end and other < other_end:
        # So many steps without a look at the count: each takes one hash or two.
        for _ in range(min(64, min(one_end - one, other_end - other))):
            left, right = hashes[one], hashes[other]
            # Without a branch on the order, which is as good as random.
            shared += left == right
            one += left <= right
            other += right <= left
        if one + other - begun - 2 * shared > misses:
            return -1
    return shared


@kernel
def _jaccard(a: Int64s, b: Int64s, offsets: Int64s, hashes: UInt64s, out: Float64s) -> None:
    for pair in range(len(a)):
        one, one_end = offsets[a[pair]], offsets[a[pair] + 1]
        other, other_end = offsets[b[pair]], offsets[b[pair] + 1]
        total = one_end - one + other_end - other
        shared = _shared(hashes, one, one_end, other, other_end, total)
        out[pair] = shared / (total - shared) if total else 0.0


@dataclass(frozen=True)
class ShingleSets:
    """Documents with what decides which of them stay, in any order.

    Attributes:
        doc_id: int64 of shape (n,), each once.
        priority: int64 of shape (n,); the smallest stays.
        keys: ``band_keys``, uint64 of shape (n, bands).
        offsets: int64 of shape (n + 1,).
        hashes: uint64; ``hashes[offsets[i]:offsets[i + 1]]`` are the shingles of document i, ascending, each once.
    """

    doc_id: Int64s
    priority: Int64s
    keys: UInt64s
    offsets: Int64s
    hashes: UInt64s


@dataclass(frozen=True)
class Survivors:
    """What became of documents.

    Attributes:
        removals: ``REMOVAL``, ascending by doc_id. The witness is the kept document with the greatest Jaccard among
            those compared, of equal ones the first in order. No witness is itself removed.
        cluster: int64 of shape (n,): the smallest doc_id that a document is connected with by verified pairs of a
            document and a kept one; its own where it is alone.
        limited: bool of shape (n,): of a bucket of it there were more kept ones than it was compared with.
        comparisons: pairs whose Jaccard was computed.
    """

    removals: Structured
    cluster: Int64s
    limited: npt.NDArray[np.bool_]
    comparisons: int


def survivors(sets: ShingleSets, threshold: float, compared_per_key: int) -> Survivors:
    """Decide which documents are removed.

    Whole components of linked documents are needed, one or many; memory is about 150 bytes a document and 12 a key,
    beside the sets, which are read in order of the comparisons and may be mapped from a file.

    Args:
        sets: the documents.
        threshold: compared, like each Jaccard, after rounding to 1e-4.
        compared_per_key: most kept documents of a bucket that a later one is compared with.
    """
    order = order_of(sets.priority, sets.doc_id)
    size = np.diff(sets.offsets)
    slots, room = _slots(sets.keys[order], size[order], threshold, compared_per_key)
    count = len(order)
    witness, score = np.full(count, -1), np.zeros(count, np.int64)
    cluster, limited = np.arange(count), np.zeros(count, np.bool_)
    comparisons = _greedy(
        slots,
        room,
        compared_per_key,
        argument(sets.offsets[order]),
        argument(size[order]),
        argument(np.asarray(sets.hashes)),
        _steps(threshold),
        witness,
        score,
        cluster,
        limited,
    )
    removed = np.flatnonzero(witness >= 0)
    removals = np.empty(len(removed), REMOVAL)
    removals["doc_id"], removals["witness"] = sets.doc_id[order[removed]], sets.doc_id[order[witness[removed]]]
    removals["jaccard"] = score[removed] / SCORE_STEPS
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, cluster, sets.doc_id[order])
    smallest, is_limited = np.empty(count, np.int64), np.empty(count, np.bool_)
    smallest[order], is_limited[order] = least[cluster], limited
    return Survivors(removals[np.argsort(removals["doc_id"])], smallest, is_limited, int(comparisons))


def _slots(
    keys: UInt64s, size: Int64s, threshold: float, compared_per_key: int
) -> tuple[npt.NDArray[np.int32], Int64s]:
    """Number the parts of buckets that hold two documents or more.

    Returns:
        int32 of shape (n, bands), -1 for a document alone; and where the room for the kept ones of each part begins,
        int64 of shape (parts + 1,).
    """
    flat, sizes = keys.reshape(-1), np.repeat(size, keys.shape[1])
    order = np.argsort(flat)
    starts = _starts(flat[order])
    # Documents without shingles share all their bands, and no content.
    order = order[~_alone(starts) & (sizes[order] > 0)]
    order = order[np.lexsort((sizes[order], flat[order]))]
    found = sizes[order].astype(np.uint32)
    parts = _parts_of(flat[order], found, found, threshold)
    counts = np.bincount(parts) if len(parts) else np.zeros(0, np.int64)
    slots = np.full(len(flat), -1, np.int32)
    slots[order] = np.where(counts[parts] > 1, parts, -1)
    room = np.append(0, np.cumsum(np.minimum(counts, compared_per_key)))
    return slots.reshape(keys.shape), room.astype(np.int64)


@subkernel
def _root(parent: Int64s, at: int) -> int:
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = parent[at]
    return at


@kernel
def _greedy(
    slots: npt.NDArray[np.int32],
    room: Int64s,
    compared_per_key: int,
    starts: Int64s,
    size: Int64s,
    hashes: UInt64s,
    steps: int,
    witness: Int64s,
    score: Int64s,
    cluster: Int64s,
    limited: npt.NDArray[np.bool_],
) -> int:
    """Take documents in order; ``room`` says where the kept ones of each part of a bucket stand."""
    kept = np.empty(room[-1], np.int64)
    count = np.zeros(len(room), np.int64)
    seen = np.full(len(size), -1)
    comparisons = 0
    # The least share of all hashes of both that reaches the threshold: (J - half a step) / (1 + J - half a step).
    bound = (steps - 0.5) / 10_000.0
    for at in range(len(size)):
        for band in range(slots.shape[1]):
            slot = slots[at, band]
            if slot < 0:
                continue
            here = min(count[slot], compared_per_key)
            limited[at] |= count[slot] > compared_per_key
            for place in range(room[slot], room[slot] + here):
                other = kept[place]
                if seen[other] == at:
                    continue
                seen[other] = at
                if not _can_reach(np.minimum(size[at], size[other]), np.maximum(size[at], size[other]), steps):
                    continue
                comparisons += 1
                total = size[at] + size[other]
                misses = total - 2 * np.maximum(0, np.int64(bound / (1 + bound) * total) - 1)
                one, two = starts[at], starts[other]
                shared = _shared(hashes, one, one + size[at], two, two + size[other], misses)
                if shared < 0:
                    continue
                found = np.int64(np.rint(shared / (total - shared) * 10_000.0))
                if found < steps:
                    continue
                if witness[at] < 0 or found > score[at] or (found == score[at] and other < witness[at]):
                    witness[at], score[at] = other, found
                a, b = _root(cluster, at), _root(cluster, other)
                cluster[max(a, b)] = min(a, b)
        if witness[at] < 0:
            for band in range(slots.shape[1]):
                slot = slots[at, band]
                if slot >= 0:
                    if count[slot] < room[slot + 1] - room[slot]:
                        kept[room[slot] + count[slot]] = at
                    count[slot] += 1
    for at in range(len(cluster)):
        cluster[at] = _root(cluster, at)
    return comparisons
