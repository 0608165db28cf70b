from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizer import ShardedAdamW

SETTINGS = TrainSettings(weight_decay=0.2, clip_norm=1.0, epsilon=1e-8)
NAMES = ("blocks.0.attention.query.weight", "blocks.0.attention_norm.weight", "embedding.weight")


def _masters(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 4, generator=generator) for name in NAMES}


def _by_definition(masters: dict[str, Tensor], steps: list[tuple[dict[str, Tensor], float]]) -> dict[str, np.ndarray]:
    """AdamW and clipping as the paper writes them, in float64."""
    weights = {name: master.double().numpy() for name, master in masters.items()}
    first = {name: np.zeros((3, 4)) for name in NAMES}
    second = {name: np.zeros((3, 4)) for name in NAMES}
    for t, (gradients, rate) in enumerate(steps, start=1):
        flat = {name: gradient.double().numpy() for name, gradient in gradients.items()}
        norm = math.sqrt(sum(float((g**2).sum()) for g in flat.values()))
        for name, gradient in flat.items():
            g = gradient * min(1.0, SETTINGS.clip_norm / norm)
            first[name] = SETTINGS.beta1 * first[name] + (1 - SETTINGS.beta1) * g
            second[name] = SETTINGS.beta2 * second[name] + (1 - SETTINGS.beta2) * g**2
            m, v = first[name] / (1 - SETTINGS.beta1**t), second[name] / (1 - SETTINGS.beta2**t)
            decay = SETTINGS.weight_decay if name == NAMES[0] else 0.0
            weights[name] = weights[name] * (1 - rate * decay) - rate * m / (np.sqrt(v) + SETTINGS.epsilon)
    return weights


@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-3, 1.0, 50.0]))
@settings(deadline=None, max_examples=15)
def test_updates_are_those_of_the_definition(seed: int, scale: float) -> None:
    masters = _masters(seed)
    steps = [({n: g * scale for n, g in _masters(seed + 1 + i).items()}, rate) for i, rate in enumerate((0.1, 0.03))]
    expected = _by_definition(masters, steps)
    optimizer = ShardedAdamW(masters, SETTINGS, None)
    for gradients, rate in steps:
        optimizer.step({name: gradient.clone() for name, gradient in gradients.items()}, rate)
    for name in NAMES:
        np.testing.assert_allclose(masters[name].numpy(), expected[name], rtol=1e-4, atol=1e-5)
    assert optimizer.steps == 2


@given(scale=st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=20)
def test_the_norm_is_returned_before_clipping_to_the_limit(scale: float) -> None:
    optimizer = ShardedAdamW(_masters(0), SETTINGS, None)
    gradients = {name: gradient * scale for name, gradient in _masters(1).items()}
    whole = torch.cat([g.flatten() for g in gradients.values()]).norm().item()
    assert optimizer.step(gradients, 0.0) == pytest.approx(whole, rel=1e-6)
    clipped = torch.cat([g.flatten() for g in gradients.values()]).norm().item()
    assert clipped == pytest.approx(min(whole, 1.0), rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    masters = _masters(0)
    before = {name: master.clone() for name, master in masters.items()}
    optimizer = ShardedAdamW(masters, SETTINGS, None)
    gradients = _masters(1)
    gradients[NAMES[1]][0, 0] = bad
    assert not math.isfinite(optimizer.step(gradients, 0.1))
    assert optimizer.steps == 0
    for name in NAMES:
        assert torch.equal(masters[name], before[name])
    assert all(not moment.any() for _, first, second in optimizer.moments() for moment in (first, second))


def test_steps_and_moments_are_resumed_exactly() -> None:
    whole, parts = _masters(0), _masters(0)
    straight, before = ShardedAdamW(whole, SETTINGS, None), ShardedAdamW(parts, SETTINGS, None)
    for step in range(4):
        straight.step(_masters(step + 1), 0.01)
        if step < 2:
            before.step(_masters(step + 1), 0.01)
    after = ShardedAdamW(parts, SETTINGS, None)
    for (_, *old), (_, *new) in zip(before.moments(), after.moments(), strict=True):
        for source, target in zip(old, new, strict=True):
            target.copy_(source)
    after.set_steps(before.steps)
    for step in range(2, 4):
        after.step(_masters(step + 1), 0.01)
    for name in NAMES:
        assert torch.equal(parts[name], whole[name])


def test_an_empty_share_is_updated_too() -> None:
    masters = {NAMES[0]: torch.ones(2, 2), NAMES[1]: torch.ones(0)}
    optimizer = ShardedAdamW(masters, SETTINGS, None)
    assert optimizer.step({NAMES[0]: torch.full((2, 2), 0.1), NAMES[1]: torch.ones(0)}, 0.1) == pytest.approx(0.2)
    assert ShardedAdamW({NAMES[1]: torch.ones(0)}, SETTINGS, None).norm({NAMES[1]: torch.ones(0)}) == 0.0
