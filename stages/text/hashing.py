"""Decisions by hash, which must not depend on order, machine or number of workers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from shards.permute import splitmix64

__all__ = ["UINT64_MASK", "below_share", "splitmix64"]

UINT64_MASK: Final = (1 << 64) - 1


def below_share(hashes: npt.NDArray[np.uint64], share: float) -> npt.NDArray[np.bool_]:
    """Return the mask of ``hashes`` in the lowest ``share`` (0 to 1) of the 64-bit range: none at 0, all at 1.

    The threshold is exact, so what is below a share is below every larger one.
    """
    threshold = int(share * 2.0**64)
    if threshold > UINT64_MASK:
        return np.ones(hashes.shape, np.bool_)
    return np.asarray(hashes < np.uint64(threshold), np.bool_)
