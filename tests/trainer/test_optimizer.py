from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizer import build_optimizer, clipping, squares
from trainer.optimizers.base import Masters, Optimizer

NAMES = (
    "blocks.0.attention.query.weight",
    "blocks.0.feed_forward.up.weight",
    "blocks.0.attention_norm.weight",
    "embedding.weight",
)
OPTIMIZERS = ("adamw", "muon", "adafactor", "sgd", "lion", "sm3", "adamw averaged", "muon averaged")


def tensors(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(*((6,) if "norm" in name else (6, 4)), generator=generator, dtype=torch.float32)
        for name in NAMES
    }


def build(rows: dict[str, Tensor], kind: str) -> Optimizer:
    shapes = {name: row.shape for name, row in rows.items()}
    name, _, averaged = kind.partition(" ")
    table = {"optimizer": name, "weight_decay": 0.2, "ema_decay": 0.9 if averaged else None}
    return build_optimizer(Masters(rows, shapes), TrainSettings.model_validate(table))


def take(optimizer: Optimizer, seed: int, *, rate: float = 0.01, bad: float | None = None) -> None:
    gradients = tensors(seed)
    if bad is not None:
        gradients[NAMES[1]][0, 0] = bad
    norm = squares(gradients).sqrt()
    optimizer.step(gradients, rate, clipping(norm, 1.0), norm.isfinite())


@given(seed=st.integers(0, 99), scale=st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=20)
def test_the_norm_is_of_the_whole_gradient_and_clipping_brings_it_to_the_limit(seed: int, scale: float) -> None:
    gradients = {name: gradient * scale for name, gradient in tensors(seed).items()}
    norm = squares(gradients).sqrt()
    assert norm.item() == pytest.approx(torch.cat([g.flatten() for g in gradients.values()]).norm().item(), rel=1e-6)
    factor = clipping(norm, 1.0)
    assert (norm * factor).item() == pytest.approx(min(norm.item(), 1.0), rel=1e-6)
    assert norm.item() > 1.0 or factor.item() == 1.0


def test_no_rows_have_no_norm() -> None:
    assert squares({"a": torch.ones(0), "b": torch.ones(0, 3)}).item() == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_gradient_that_is_not_finite_changes_nothing(kind: str, bad: float) -> None:
    rows = tensors(0)
    optimizer = build(rows, kind)
    take(optimizer, 1)
    before = {name: row.clone() for name, row in rows.items()}
    state = {name: state.tensor.clone() for name, state in optimizer.state().items()}
    take(optimizer, 2, bad=bad)
    assert optimizer.updates == 1
    assert all(torch.equal(rows[name], before[name]) for name in NAMES)
    assert all(torch.equal(found.tensor, state[name]) for name, found in optimizer.state().items())
    take(optimizer, 3)
    assert optimizer.updates == 2
    assert not any(torch.equal(rows[name], before[name]) for name in NAMES)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_updates_and_state_are_resumed_exactly(kind: str) -> None:
    whole, parts = tensors(0), tensors(0)
    straight, before = build(whole, kind), build(parts, kind)
    for step in range(4):
        take(straight, step + 1)
        if step < 2:
            take(before, step + 1)
    after = build(parts, kind)
    saved, fresh = before.state(), after.state()
    assert saved.keys() == fresh.keys()
    for name, state in fresh.items():
        state.tensor.copy_(saved[name].tensor)
    after.set_updates(before.updates)
    for step in range(2, 4):
        take(after, step + 1)
    for name in NAMES:
        assert torch.equal(parts[name], whole[name])
