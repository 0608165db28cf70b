"""Compiling numba kernels: on first call, kept on disk where that is possible.

Importing a module of kernels compiles nothing. Each kernel is called with one set of types only, so that it is compiled
once; the machine code is kept beside the source or in ``NUMBA_CACHE_DIR``, so that the next process loads it in
milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name  # type: ignore[import-untyped]

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=np.generic)

MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
MIX_2: Final = np.uint64(0x94D049BB133111EB)
"""Multipliers of the splitmix64 finaliser (Stafford's variant 13), which spreads every input bit over all 64."""

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, the increment of splitmix64 (Steele, Lea and Flood 2014)."""


def kernel(function: F) -> F:
    """Compile ``function`` with numba when it is first called, for calls from Python; it may call a ``subkernel``.

    Its files on disk are named after all that the machine code depends on. By numba's own names, a process that starts
    while another recompiles after an upgrade can load the old code under the new index: wrong results, silently.
    """
    try:
        origin = _source(function, set()) + Path(__file__).read_bytes()
        machine = f"{numba.__version__} {get_host_cpu_name()} {get_host_cpu_features().flatten()}"
        digest = hashlib.sha256(origin + machine.encode()).hexdigest()[:16]
        function.__qualname__ = f"{function.__qualname__}_{digest}"
        return cast(F, numba.njit(function, cache=True, nogil=True))
    except (OSError, RuntimeError):
        # No source to name it after, or no folder that can be written: compile in every process.
        return cast(F, numba.njit(function, nogil=True))


def _source(function: Callable[..., Any], seen: set[object]) -> bytes:
    """Return the files of ``function``, of what it calls of ours, and the numbers it takes from others."""
    if function in seen:
        return b""
    file = function.__code__.co_filename
    parts = [] if file in seen else [Path(file).read_bytes()]
    seen |= {function, file}
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, int | float | np.generic):
            parts.append(f"{name}={value!r}".encode())
        elif inner := getattr(value, "py_func", None) or getattr(value, "_defn", None):
            parts.append(_source(inner, seen))
    return b"\n".join(parts)


def subkernel(function: F) -> F:
    """Compile ``function`` into the kernels that call it, of the same file or of others."""
    return cast(F, numba.njit(function, nogil=True))


def argument(array: npt.NDArray[S]) -> npt.NDArray[S]:
    """Return a read-only, contiguous, aligned view, a copy only where it must be: the form in which kernels take input.

    numba compiles again for each other form, and two processes that do so at once can overwrite each other's files.
    """
    view = np.require(array, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view


@subkernel
def mix(value: np.uint64) -> np.uint64:
    """Return the splitmix64 finaliser of one value, for use inside kernels."""
    value = (value ^ (value >> np.uint64(30))) * MIX_1
    value = (value ^ (value >> np.uint64(27))) * MIX_2
    return value ^ (value >> np.uint64(31))


def mix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the splitmix64 finaliser of every value (a bijection), uint64 of the same shape."""
    values = (values ^ (values >> np.uint64(30))) * MIX_1
    values = (values ^ (values >> np.uint64(27))) * MIX_2
    return values ^ (values >> np.uint64(31))


def random_words(seed: int, count: int) -> npt.NDArray[np.uint64]:
    """Return ``count`` uint64 words of splitmix64 from ``seed``: the same in every version of every library."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    return mix64(np.uint64(seed % (1 << 64)) + steps)
