from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.text.hashing import UINT64_MASK, below_share, splitmix64

U64 = st.integers(0, UINT64_MASK)
SHARES = st.floats(0, 1, allow_nan=False)


def splitmix64_in_integers(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) & UINT64_MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & UINT64_MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & UINT64_MASK
    return z ^ (z >> 31)


def test_gives_the_published_sequence_of_seed_1234567() -> None:
    states = np.uint64(1234567) + np.arange(5, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert splitmix64(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.lists(U64, max_size=20))
def test_agrees_with_integers_of_any_size(keys: list[int]) -> None:
    assert splitmix64(np.array(keys, np.uint64)).tolist() == [splitmix64_in_integers(key) for key in keys]


@given(st.lists(U64, max_size=20), SHARES, SHARES)
def test_a_smaller_share_is_a_subset_and_the_ends_are_exact(hashes: list[int], a: float, b: float) -> None:
    values = np.array([*hashes, 0, UINT64_MASK], np.uint64)
    low, high = sorted((a, b))
    assert not (below_share(values, low) & ~below_share(values, high)).any()
    assert not below_share(values, 0.0).any()
    assert below_share(values, 1.0).all()
