from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizers.adamw import AdamW
from trainer.optimizers.base import Masters

SETTINGS = TrainSettings(weight_decay=0.2, epsilon=1e-8)
NAMES = ("blocks.0.attention.query.weight", "blocks.0.attention_norm.weight", "embedding.weight")
YES = torch.tensor(True)


def masters(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, 4, generator=generator) for name in NAMES}


def adamw(rows: dict[str, Tensor]) -> AdamW:
    return AdamW(Masters(rows, {name: row.shape for name, row in rows.items()}), SETTINGS, SETTINGS.decays)


def by_definition(
    weights: dict[str, Tensor], steps: list[tuple[dict[str, Tensor], float, float]]
) -> dict[str, np.ndarray]:
    """AdamW as the paper writes it, in float64."""
    found = {name: weight.double().numpy() for name, weight in weights.items()}
    first, second = ({name: np.zeros((3, 4)) for name in NAMES} for _ in range(2))
    for t, (gradients, rate, scale) in enumerate(steps, start=1):
        for name, gradient in gradients.items():
            g = gradient.double().numpy() * scale
            first[name] = SETTINGS.beta1 * first[name] + (1 - SETTINGS.beta1) * g
            second[name] = SETTINGS.beta2 * second[name] + (1 - SETTINGS.beta2) * g**2
            m, v = first[name] / (1 - SETTINGS.beta1**t), second[name] / (1 - SETTINGS.beta2**t)
            decay = SETTINGS.weight_decay if name == NAMES[0] else 0.0
            found[name] = found[name] * (1 - rate * decay) - rate * m / (np.sqrt(v) + SETTINGS.epsilon)
    return found


@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-3, 1.0, 0.02]))
@settings(deadline=None, max_examples=15)
def test_updates_are_those_of_the_definition(seed: int, scale: float) -> None:
    rows = masters(seed)
    steps = [(masters(seed + 1 + i), rate, scale) for i, rate in enumerate((0.1, 0.03))]
    expected = by_definition(rows, steps)
    optimizer = adamw(rows)
    for gradients, rate, factor in steps:
        optimizer.step({n: g.clone() for n, g in gradients.items()}, rate, torch.tensor(factor), YES)
    for name in NAMES:
        np.testing.assert_allclose(rows[name].numpy(), expected[name], rtol=1e-4, atol=1e-5)
    assert optimizer.updates == 2


def test_it_is_the_plain_torch_optimizer_where_nothing_is_clipped() -> None:
    rows, plain = masters(0), torch.nn.Parameter(masters(0)[NAMES[0]])
    optimizer, oracle = adamw(rows), torch.optim.AdamW([plain], lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.2)
    for seed in (1, 2, 3):
        plain.grad = masters(seed)[NAMES[0]].clone()
        oracle.step()
        optimizer.step(masters(seed), 0.1, torch.tensor(1.0), YES)
    torch.testing.assert_close(rows[NAMES[0]], plain.detach(), rtol=1e-6, atol=1e-7)


def test_an_empty_share_is_updated_too() -> None:
    rows = {NAMES[0]: torch.ones(2, 2), NAMES[1]: torch.ones(0)}
    optimizer = adamw(rows)
    optimizer.step({NAMES[0]: torch.full((2, 2), 0.1), NAMES[1]: torch.ones(0)}, 0.1, torch.tensor(1.0), YES)
    assert (rows[NAMES[0]] < 1.0).all()


@pytest.mark.parametrize("updates", [0, 7])
def test_the_number_of_updates_is_set(updates: int) -> None:
    optimizer = adamw(masters(0))
    optimizer.set_updates(updates)
    optimizer.step(masters(1), 0.1, torch.tensor(1.0), YES)
    assert optimizer.updates == updates + 1
