"""A two-level Bloom filter: which 128-bit hashes may have been added twice (Bloom 1970).

The first level holds every key; the second holds those that seemed to be in the first already when they were added.
Querying the second level after all keys were added returns the suspects: no false negatives, and few keys that were
added only once.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from shards.errors import UserError
from stages.jit import MIX_1, argument, kernel, mix, subkernel

MAX_PROBES: Final = 32


def bloom_size(items: int, false_positive_rate: float) -> tuple[int, int]:
    """Return (bits, probes) of a filter for ``items`` keys: bits = -n ln p / (ln 2)^2, probes = bits / n ln 2.

    Any number of bits, not a power of two. At least 64.

    Raises:
        UserError: if the rate is not inside (0, 1), or items is negative.
    """
    if not 0 < false_positive_rate < 1:
        raise UserError(
            f"a false-positive rate of {false_positive_rate}",
            place="false_positive_rate",
            remedy="Choose a number between 0 and 1; 0.01 is usual",
        )
    if items < 0:
        raise UserError(f"a Bloom filter for {items} items", place="items", remedy="Pass a count of 0 or more")
    bits = max(64, math.ceil(-items * math.log(false_positive_rate) / math.log(2) ** 2))
    probes = round(bits / items * math.log(2)) if items else 1
    return bits, min(max(1, probes), MAX_PROBES)


class TwoLevelBloom:
    """A set of 128-bit keys, and a second one of those that were added more than once.

    Keys are passed as two uint64 arrays of equal length, the upper and the lower half.

    Attributes:
        bits: size of each level in bits.
        probes: bits set per key.
    """

    def __init__(self, items: int, false_positive_rate: float) -> None:
        self.bits, self.probes = bloom_size(items, false_positive_rate)
        self._once = np.zeros(-(-self.bits // 64), np.uint64)
        self._twice = np.zeros_like(self._once)

    def add(self, hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]) -> None:
        """Add keys, two arrays of shape (n,). One that may be in the first level already is added to the second too."""
        hi, lo = _halves(hi, lo)
        _add(self._once, self._twice, np.uint64(self.bits), self.probes, hi, lo)

    def suspects(self, hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return which keys may have been added more than once, bool of shape (n,). False is certain."""
        hi, lo = _halves(hi, lo)
        found = np.empty(len(hi), np.bool_)
        _contains(argument(self._twice), np.uint64(self.bits), self.probes, hi, lo, found)
        return found


def _halves(
    hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    if hi.dtype != np.uint64 or lo.dtype != np.uint64 or hi.ndim != 1 or hi.shape != lo.shape:
        raise ValueError(f"halves are {hi.dtype}{hi.shape} and {lo.dtype}{lo.shape}, not uint64 arrays of equal length")
    return argument(hi), argument(lo)


@subkernel
def _reduce(value: np.uint64, bits: np.uint64) -> np.uint64:
    """Return the upper half of the 128-bit product: ``value`` scaled to [0, bits) without a division (Lemire 2019)."""
    half = np.uint64(32)
    lower = np.uint64(0xFFFFFFFF)
    low = (value & lower) * (bits & lower)
    middle = (value >> half) * (bits & lower) + (low >> half)
    other = (value & lower) * (bits >> half) + (middle & lower)
    return (value >> half) * (bits >> half) + (middle >> half) + (other >> half)


@subkernel
def _starts(hi: np.uint64, lo: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the first probe and the step of double hashing (Kirsch and Mitzenmacher 2006).

    Mixed, because keys are partitioned by ranges of ``hi``: unmixed, those of a range would fill a slice of the filter.
    """
    return mix(hi), mix(lo ^ MIX_1) | np.uint64(1)


@kernel
def _add(
    once: npt.NDArray[np.uint64],
    twice: npt.NDArray[np.uint64],
    bits: np.uint64,
    probes: int,
    hi: npt.NDArray[np.uint64],
    lo: npt.NDArray[np.uint64],
) -> None:
    for at in range(len(hi)):
        first, step = _starts(hi[at], lo[at])
        value = first
        known = np.uint64(1)
        for _ in range(probes):
            position = _reduce(value, bits)
            word = position >> np.uint64(6)
            shift = position & np.uint64(63)
            known &= once[word] >> shift
            once[word] |= np.uint64(1) << shift
            value += step
        if known:
            value = first
            for _ in range(probes):
                position = _reduce(value, bits)
                twice[position >> np.uint64(6)] |= np.uint64(1) << (position & np.uint64(63))
                value += step


@kernel
def _contains(
    level: npt.NDArray[np.uint64],
    bits: np.uint64,
    probes: int,
    hi: npt.NDArray[np.uint64],
    lo: npt.NDArray[np.uint64],
    found: npt.NDArray[np.bool_],
) -> None:
    for at in range(len(hi)):
        value, step = _starts(hi[at], lo[at])
        hit = True
        for _ in range(probes):
            position = _reduce(value, bits)
            if not level[position >> np.uint64(6)] >> (position & np.uint64(63)) & np.uint64(1):
                hit = False
                break
            value += step
        found[at] = hit
