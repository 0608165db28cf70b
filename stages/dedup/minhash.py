"""MinHash signatures and their bands (Broder 1997; banding as in Leskovec, Rajaraman and Ullman, ch. 3).

A permutation is an affine map of 32 bits, ``a * x + b`` modulo 2^32 with odd ``a``: one vector instruction for sixteen
of them. ``x`` is the upper half of a shingle's 64-bit hash, which is well mixed, so the least value is a uniform choice
among the shingles, and signatures of sets with Jaccard J agree in a share J of their places. They only propose
candidates; the exact Jaccard decides (``stages.dedup.near``).
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import numpy.typing as npt

from shards.errors import UserError
from stages.jit import argument, kernel, mix64, random_words, subkernel
from stages.text.characters import character_table
from stages.text.shingles import buffer_shingles, distinct, list_shingles, require_length, slots_for
from stages.text.words import base_powers, byte_terms

DEFAULT_PERMUTATIONS: Final = 112
"""At a threshold of 0.8: 16 bands of 7 rows, which find 97.7% of pairs at 0.8 and 11.8% of those at 0.5."""

MAX_PERMUTATIONS: Final = 4096

RECALL_AT_THRESHOLD: Final = 0.95
"""Least share of pairs exactly at the threshold that the bands must make candidates."""

EMPTY: Final = np.uint32(0xFFFFFFFF)
"""Every place in the signature of a document without shingles."""


def candidate_probability(jaccard: npt.ArrayLike, bands: int, rows: int) -> npt.NDArray[np.float64]:
    """Return the probability 1 - (1 - J^rows)^bands of sharing a band, float64 of the shape of ``jaccard``."""
    return np.asarray(1 - (1 - np.asarray(jaccard, np.float64) ** rows) ** bands)


def bands_for(threshold: float, permutations: int) -> tuple[int, int]:
    """Choose bands and rows per band: the most rows that still find 95% of pairs exactly at ``threshold``.

    More rows mean fewer candidates to verify. Minimising false positives and false negatives alike, as other tools do,
    would choose 9 bands of 13 rows for a threshold of 0.8 and 128 permutations, and miss 60% of the pairs at 0.8. Here
    candidates are verified, so a false positive costs a moment, and only a false negative is an error. Some
    permutations may belong to no band.

    Returns:
        (bands, rows) with ``bands * rows <= permutations``.

    Raises:
        UserError: if the threshold is outside (0, 1], or no bands of so few permutations reach it.
    """
    if not 0 < threshold <= 1:
        raise UserError(f"a Jaccard threshold of {threshold}", place="threshold", remedy="Use 0.5 to 1; 0.8 is usual")
    if not 1 <= permutations <= MAX_PERMUTATIONS:
        raise UserError(f"{permutations} permutations", place="permutations", remedy=f"Use 1 to {MAX_PERMUTATIONS}")
    # A band of more than 16 rows is almost the whole document: two edits would separate duplicates at any threshold.
    for rows in range(min(16, permutations), 0, -1):
        bands = permutations // rows
        if candidate_probability(threshold, bands, rows) >= RECALL_AT_THRESHOLD:
            return bands, rows
    raise UserError(
        f"{permutations} permutations find less than {RECALL_AT_THRESHOLD:.0%} of pairs with Jaccard {threshold}",
        place="permutations, threshold",
        remedy="Use more permutations or a higher threshold",
    )


@functools.cache
def _coefficients(permutations: int, seed: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    words = random_words(seed, permutations)
    factors = (words >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
    return factors, words.astype(np.uint32)


def signatures(
    offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64], permutations: int, seed: int
) -> npt.NDArray[np.uint32]:
    """Return the MinHash signature of every document.

    Args:
        offsets: int64 of shape (n + 1,), from ``batch_shingles``.
        hashes: uint64 shingles of all documents.
        permutations: length of a signature.
        seed: of the permutations; only signatures with the same one can be compared.

    Returns:
        uint32 of shape (n, permutations); a document without shingles has ``EMPTY`` everywhere.
    """
    factors, terms = _coefficients(permutations, seed)
    out = np.full((len(offsets) - 1, permutations), EMPTY, np.uint32)
    _minima(argument(offsets), argument(hashes), argument(factors), argument(terms), out)
    return out


def text_signatures(
    data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64], words: int, permutations: int, seed: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
    """Return the signatures of n documents, and how many different shingles each has, as ``signatures`` has them.

    A document's shingles are never written to memory beyond a space for those of one, nor sorted.

    Args:
        data: UTF-8, in NFC.
        bounds: where the documents begin, int64 of shape (n + 1,).
        words: length of a shingle.
        permutations: length of a signature.
        seed: of the permutations.

    Returns:
        uint32 of shape (n, permutations), and int32 of shape (n,).

    Raises:
        UserError: if ``words`` is out of range.
    """
    require_length(words)
    factors, terms = _coefficients(permutations, seed)
    out = np.full((len(bounds) - 1, permutations), EMPTY, np.uint32)
    counts = np.zeros(len(bounds) - 1, np.int32)
    most = int(np.diff(bounds).max(initial=0)) // 2 + 2
    tables = character_table(), byte_terms(), base_powers()
    spaces = np.empty(most, np.uint64), slots_for(most)
    _sign(argument(data), argument(bounds), *tables, words, argument(factors), argument(terms), *spaces, out, counts)
    for row in np.flatnonzero(counts < 0).tolist():
        counts[row] = len(buffer_shingles(data, bounds[row : row + 2], words)[1])
    return out, counts


@kernel
def _sign(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    table: npt.NDArray[np.uint32],
    byte_terms: npt.NDArray[np.uint64],
    powers: npt.NDArray[np.uint64],
    words: int,
    factors: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint32],
    hashes: npt.NDArray[np.uint64],
    slots: npt.NDArray[np.uint64],
    out: npt.NDArray[np.uint32],
    counts: npt.NDArray[np.int32],
) -> None:
    for row in range(len(bounds) - 1):
        count = list_shingles(data, bounds[row], bounds[row + 1], table, byte_terms, powers, words, hashes)
        counts[row] = distinct(hashes, count, slots)
        _lower(hashes, 0, count, factors, terms, out[row])


@kernel
def _minima(
    offsets: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
    factors: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint32],
    out: npt.NDArray[np.uint32],
) -> None:
    for row in range(len(offsets) - 1):
        _lower(hashes, offsets[row], offsets[row + 1], factors, terms, out[row])


@subkernel
def _lower(
    hashes: npt.NDArray[np.uint64],
    at: int,
    end: int,
    factors: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint32],
    least: npt.NDArray[np.uint32],
) -> None:
    """Lower the least values of the permutations to those of ``hashes[at:end]``."""
    # Four shingles for each time that a permutation and its least value are loaded.
    while at + 4 <= end:
        one, two = np.uint32(hashes[at] >> np.uint64(32)), np.uint32(hashes[at + 1] >> np.uint64(32))
        three, four = np.uint32(hashes[at + 2] >> np.uint64(32)), np.uint32(hashes[at + 3] >> np.uint64(32))
        for place in range(len(factors)):
            factor, term = factors[place], terms[place]
            first = min(np.uint32(factor * one + term), np.uint32(factor * two + term))
            second = min(np.uint32(factor * three + term), np.uint32(factor * four + term))
            least[place] = min(least[place], min(first, second))
        at += 4
    while at < end:
        shingle = np.uint32(hashes[at] >> np.uint64(32))
        for place in range(len(factors)):
            least[place] = min(least[place], np.uint32(factors[place] * shingle + terms[place]))
        at += 1


def band_keys(signatures: npt.NDArray[np.uint32], bands: int, rows: int) -> npt.NDArray[np.uint64]:
    """Return a key for each band of each signature: documents that agree in all rows of a band have the same.

    Args:
        signatures: uint32 of shape (n, permutations), ``bands * rows <= permutations``.

    Returns:
        uint64 of shape (n, bands). Keys of different bands differ for the same rows.

    Raises:
        ValueError: if the signatures are too short.
    """
    if signatures.ndim != 2 or signatures.shape[1] < bands * rows:
        raise ValueError(f"signatures of shape {signatures.shape} are too short for {bands} bands of {rows} rows")
    grouped = signatures[:, : bands * rows].reshape(len(signatures), bands, rows)
    keys = np.broadcast_to(random_words(rows, bands), (len(signatures), bands))
    for row in range(rows):
        keys = mix64(keys ^ grouped[:, :, row])
    return keys
