"""Permutations that need no memory: the i-th item of a shuffled order, as a pure function of a key.

A generalised Feistel network over Z_a x Z_b (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002) with
a * b just above the size, so that cycle walking back into the range is rare at any size. The round function is
splitmix64 (Steele, Lea and Flood, 2014).
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

import numpy as np
import numpy.typing as npt

ROUNDS: Final = 6
"""Luby and Rackoff need four for a pseudorandom permutation; two more cost little at the small halves used here."""

_MASK: Final = (1 << 64) - 1
_GAMMA: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB


def splitmix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the splitmix64 output of each value: uint64 in, uint64 of the same shape out. A bijection on 64 bits."""
    z = values + np.uint64(_GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))


def derive_key(*parts: int | str) -> int:
    """Return a 64-bit key for a path of names and numbers: the same on every machine, different for any other path."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def shuffled(size: int, key: int) -> npt.NDArray[np.int64]:
    """Return a permutation of range(size), int64 of shape (size,), for sizes that fit in memory."""
    noise = splitmix64(np.arange(size, dtype=np.uint64) ^ np.uint64(key & _MASK))
    return np.argsort(noise, kind="stable")


class Permutation:
    """A keyed bijection on range(size), evaluated at any positions without being built.

    Args:
        size: number of items, 0 to 2**62.
        key: 64-bit key; different keys give unrelated orders.
    """

    def __init__(self, size: int, key: int) -> None:
        if not 0 <= size <= 1 << 62:
            raise ValueError(f"a permutation of {size} items is outside 0 to 2**62")
        self.size = size
        self._left = math.isqrt(size - 1) + 1 if size else 1
        self._right = -(-size // self._left) if size else 1
        self._keys = [np.uint64(derive_key("round", key, index)) for index in range(ROUNDS)]

    def __call__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the item at each position: int64 in, int64 of the same shape out, both in range(size).

        Raises:
            IndexError: if a position lies outside range(size).
        """
        if positions.size and not (positions.min() >= 0 and positions.max() < self.size):
            raise IndexError(f"a position lies outside the permutation's {self.size} items")
        out = self._encrypt(positions.astype(np.uint64))
        # The network permutes a * b >= size items; repeating it until the result is inside permutes the first `size`.
        outside = np.flatnonzero(out >= np.uint64(self.size))
        while outside.size:
            out[outside] = self._encrypt(out[outside])
            outside = outside[out[outside] >= np.uint64(self.size)]
        return out.astype(np.int64)

    def _encrypt(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        a, b = np.uint64(self._left), np.uint64(self._right)
        left, right = np.divmod(values, b)
        for index, key in enumerate(self._keys):
            # The noise is reduced first: a sum that wraps at 2**64 would not be a bijection modulo a.
            if index % 2:
                right = (right + splitmix64(left ^ key) % b) % b
            else:
                left = (left + splitmix64(right ^ key) % a) % a
        return left * b + right
