"""Compiling numba kernels: on first call, kept on disk where that is possible.

Importing a module of kernels compiles nothing. Each kernel is called with one set of types only, so that it is compiled
once; the machine code is kept beside the source or in ``NUMBA_CACHE_DIR``, so that the next process loads it in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

F = TypeVar("F", bound=Callable[..., Any])

MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
MIX_2: Final = np.uint64(0x94D049BB133111EB)
"""Multipliers of the splitmix64 finaliser (Stafford's variant 13), which spreads every input bit over all 64."""

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, the increment of splitmix64 (Steele, Lea and Flood 2014)."""


def kernel(function: F) -> F:
    """Compile ``function`` with numba when it is first called; other kernels of the same file may call it.

    A kernel must not call one of another file: the cache notices a change of the kernel's own file only.
    """
    try:
        return cast(F, numba.njit(function, cache=True, nogil=True))
    except RuntimeError:
        # Neither the package's folder nor a home nor NUMBA_CACHE_DIR can be written: compile in every process.
        return cast(F, numba.njit(function, nogil=True))


def mix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Give the splitmix64 finaliser of every value (a bijection), uint64 of the same shape."""
    values = (values ^ (values >> np.uint64(30))) * MIX_1
    values = (values ^ (values >> np.uint64(27))) * MIX_2
    return values ^ (values >> np.uint64(31))


def random_words(seed: int, count: int) -> npt.NDArray[np.uint64]:
    """Give ``count`` uint64 words of splitmix64 from ``seed``: the same in every version of every library."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    return mix64(np.uint64(seed % (1 << 64)) + steps)
