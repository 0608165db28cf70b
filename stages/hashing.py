"""Hashes of numbers, for decisions that must not depend on order, machine or number of workers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

UINT64_MASK: Final = (1 << 64) - 1

# The increment and multipliers of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)


def splitmix64(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix ``keys``, uint64 of any shape, into uniformly spread uint64 of that shape: a bijection, so no two collide."""
    with np.errstate(over="ignore"):  # numpy warns of wrapping for 0-d arrays only; wrapping is what is meant
        mixed = np.asarray(keys, np.uint64) + _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def below_share(hashes: npt.NDArray[np.uint64], share: float) -> npt.NDArray[np.bool_]:
    """Give the mask of ``hashes`` in the lowest ``share`` (0 to 1) of the 64-bit range: none at 0, all at 1.

    The threshold is exact, so what is below a share is below every larger one.
    """
    threshold = int(share * 2.0**64)
    if threshold > UINT64_MASK:
        return np.ones(hashes.shape, np.bool_)
    return np.asarray(hashes < np.uint64(threshold), np.bool_)
