from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.dedup.bloom import TwoLevelBloom, bloom_size

KEY = st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 6))


def halves(keys: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(keys, np.uint64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def random_keys(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 1 << 64, (2, count), dtype=np.uint64))


@settings(deadline=None, max_examples=80)
@given(st.lists(KEY, max_size=60), st.integers(0, 60), st.floats(0.001, 0.9), st.data())
def test_never_a_false_negative(keys: list[tuple[int, int]], items: int, rate: float, data: st.DataObject) -> None:
    bloom = TwoLevelBloom(items, rate)
    cut = data.draw(st.integers(0, len(keys)))
    bloom.add(*halves(keys[:cut]))
    bloom.add(*halves(keys[cut:]))
    twice = np.array([keys.count(key) > 1 for key in keys], np.bool_)
    assert bloom.suspects(*halves(keys))[twice].all()
    bloom.add(*halves(keys))
    assert bloom.suspects(*halves(keys)).all()


@pytest.mark.parametrize("rate", [0.2, 0.01, 0.001])
@pytest.mark.parametrize("items", [40_000, 100_003])
def test_the_false_positive_rate_agrees_with_theory(items: int, rate: float) -> None:
    bloom = TwoLevelBloom(items, rate)
    keys = random_keys(items, 1)
    # Added twice, the keys are all in the second level, which alone is asked.
    bloom.add(*keys)
    bloom.add(*keys)
    queries = 400_000
    expected = (1 - np.exp(-bloom.probes * items / bloom.bits)) ** bloom.probes
    assert expected == pytest.approx(rate, rel=0.05)
    measured = bloom.suspects(*random_keys(queries, 2)).mean()
    assert abs(measured - expected) < 5 * np.sqrt(expected / queries) + 0.02 * expected


def test_few_single_keys_are_suspects() -> None:
    hi, lo = random_keys(50_000, 3)
    bloom = TwoLevelBloom(60_000, 0.01)
    bloom.add(hi, lo)
    bloom.add(hi[:10_000], lo[:10_000])
    suspects = bloom.suspects(hi, lo)
    assert suspects[:10_000].all()
    assert suspects[10_000:].mean() < 0.01


@pytest.mark.parametrize("power", [0, 7, 20, 60])
def test_keys_of_one_hash_range_still_fill_the_whole_filter(power: int) -> None:
    """A range partition leaves few free bits at the top of hi; the rate must not suffer."""
    hi, lo = random_keys(50_000, 4)
    other_hi, other_lo = random_keys(200_000, 5)
    shift = np.uint64(power)
    bloom = TwoLevelBloom(len(hi), 0.01)
    bloom.add(hi >> shift, lo)
    bloom.add(hi >> shift, lo)
    assert bloom.suspects(other_hi >> shift, other_lo).mean() == pytest.approx(0.01, rel=0.2)


def test_all_bits_of_a_size_that_is_no_power_of_two_are_used() -> None:
    bloom = TwoLevelBloom(7_000, 0.5)
    assert bloom.bits & (bloom.bits - 1)
    bloom.add(*random_keys(200_000, 6))
    levels = np.unpackbits(bloom._once.view(np.uint8), bitorder="little")
    assert levels[: bloom.bits].all()
    assert not levels[bloom.bits :].any()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 10**12), st.floats(1e-9, 0.99))
def test_sizes_are_those_of_theory(items: int, rate: float) -> None:
    bits, probes = bloom_size(items, rate)
    assert bits >= 64
    assert 1 <= probes <= 32
    if items > 1_000:
        predicted = (1 - np.exp(-probes * items / bits)) ** probes
        # A whole number of probes costs most where one or two would do; a rate near 1 needs fewer than one.
        assert predicted <= rate * 1.2 or rate > 0.6


def test_ten_bits_a_key_for_one_in_a_hundred() -> None:
    assert bloom_size(1_000_000, 0.01) == (9_585_059, 7)


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, float("nan")])
def test_impossible_rates(rate: float) -> None:
    with pytest.raises(UserError, match="false_positive_rate"):
        TwoLevelBloom(10, rate)


def test_impossible_keys() -> None:
    with pytest.raises(UserError, match="items"):
        TwoLevelBloom(-1, 0.1)
    bloom = TwoLevelBloom(1, 0.1)
    with pytest.raises(ValueError, match="not uint64"):
        bloom.add(np.zeros(2, np.int64), np.zeros(2, np.uint64))
    with pytest.raises(ValueError, match="equal length"):
        bloom.add(np.zeros(2, np.uint64), np.zeros(3, np.uint64))


def test_fields_and_read_only_views_are_keys_too() -> None:
    table = np.zeros(3, [("hi", "<u8"), ("lo", "<u8")])
    table.flags.writeable = False
    bloom = TwoLevelBloom(3, 0.1)
    bloom.add(table["hi"], table["lo"])
    assert bloom.suspects(table["hi"], table["lo"]).all()
