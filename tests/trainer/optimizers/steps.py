"""One parameter under an optimizer of ours, beside an oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizer import build_optimizer
from trainer.optimizers.base import Masters

MATRIX = "blocks.0.attention.query.weight"
VECTOR = "blocks.0.attention_norm.weight"
RATES = (0.1, 0.03, 0.02, 0.01)


def gradients(shape: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator) for _ in RATES]


def start(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def ours(name: str, shape: tuple[int, ...], **settings: Any) -> Tensor:
    """Return the parameter after four steps; gradients come scaled, to be scaled back."""
    rows = {name: start(shape), "embedding.weight": torch.ones(2, 2)}
    training = TrainSettings.model_validate(settings)
    optimizer = build_optimizer(Masters(rows, {key: row.shape for key, row in rows.items()}), training)
    for gradient, rate in zip(gradients(shape), RATES, strict=True):
        given = {name: gradient * 4, "embedding.weight": torch.ones(2, 2)}
        optimizer.step(given, rate, torch.tensor(0.25), torch.tensor(True))
    return rows[name]


def torchs(build: Callable[[list[Tensor]], torch.optim.Optimizer], shape: tuple[int, ...]) -> Tensor:
    """Return the parameter after the same steps of an optimizer of torch."""
    parameter = torch.nn.Parameter(start(shape))
    optimizer = build([parameter])
    for gradient, rate in zip(gradients(shape), RATES, strict=True):
        parameter.grad = gradient.clone()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return parameter.detach()
