from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.permute import Permutation, derive_key, shuffled, splitmix64


@given(size=st.integers(0, 3_000), key=st.integers(0, 2**64 - 1))
@settings(max_examples=80, deadline=None)
def test_a_permutation_is_a_bijection_on_any_size(size: int, key: int) -> None:
    items = Permutation(size, key)(np.arange(size))
    assert sorted(items.tolist()) == list(range(size))
    assert sorted(shuffled(size, key).tolist()) == list(range(size))


@given(size=st.integers(2**40, 2**62), key=st.integers(0, 2**64 - 1))
@settings(max_examples=20, deadline=None)
def test_a_huge_permutation_stays_inside_without_collisions(size: int, key: int) -> None:
    positions = np.concatenate([np.arange(500), np.arange(size - 500, size)])
    items = Permutation(size, key)(positions)
    assert items.min() >= 0
    assert items.max() < size
    assert len(np.unique(items)) == 1_000


@given(size=st.integers(1, 2_000), cut=st.integers(0, 2_000))
@settings(max_examples=30, deadline=None)
def test_a_part_of_the_positions_gives_that_part_of_the_items(size: int, cut: int) -> None:
    cut = min(cut, size)
    whole = Permutation(size, 11)(np.arange(size))
    assert whole[cut:].tolist() == Permutation(size, 11)(np.arange(cut, size)).tolist()


def test_positions_outside_are_refused() -> None:
    for bad in (-1, 10):
        with pytest.raises(IndexError):
            Permutation(10, 1)(np.array([bad]))


def test_splitmix64_gives_the_published_sequence() -> None:
    # The generator seeded with 1234567: state advances by the golden gamma before each output.
    gamma = 0x9E3779B97F4A7C15
    states = np.array([(1234567 + i * gamma) % 2**64 for i in range(5)], np.uint64)
    assert splitmix64(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_a_permutation_mixes() -> None:
    size = 100_000
    items = Permutation(size, 5)(np.arange(size))
    correlation = np.corrcoef(np.arange(size), items)[0, 1]
    steps = np.abs(np.diff(items))
    assert abs(correlation) < 0.02
    # The mean distance of two random items is a third of the size.
    assert abs(steps.mean() / size - 1 / 3) < 0.01
    assert (items == Permutation(size, 6)(np.arange(size))).sum() < 20


def test_keys_tell_paths_apart() -> None:
    keys = {derive_key(*path) for path in (("a", 1), ("a", "1"), ("a1",), (1, "a"), ("a", 1, 0))}
    assert len(keys) == 5
