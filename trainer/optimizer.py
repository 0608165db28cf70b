"""The optimizer of a training, and the norm by which gradients are clipped on every mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizers.adafactor import Adafactor
from trainer.optimizers.adamw import AdamW
from trainer.optimizers.average import Averaged
from trainer.optimizers.base import Masters, Optimizer
from trainer.optimizers.lion import Lion
from trainer.optimizers.muon import Muon
from trainer.optimizers.sgd import SGD
from trainer.optimizers.sm3 import SM3

_KINDS: Final[Mapping[str, Callable[[Masters, TrainSettings, Callable[[str], bool]], Optimizer]]] = {
    "adamw": AdamW,
    "muon": Muon,
    "adafactor": Adafactor,
    "sgd": SGD,
    "lion": Lion,
    "sm3": SM3,
}


def build_optimizer(masters: Masters, settings: TrainSettings) -> Optimizer:
    """Return the optimizer that the settings ask for, over ``masters``, which it updates in place."""
    optimizer = _KINDS[settings.optimizer](masters, settings, settings.decays)
    return optimizer if settings.ema_decay is None else Averaged(optimizer, masters, settings.ema_decay)


def squares(gradients: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of squares of a rank's rows of the gradient, float64 of shape (), without waiting for it."""
    parts = [torch.linalg.vector_norm(g, dtype=torch.float64).square() for g in gradients.values() if g.numel()]
    if not parts:
        device = next(iter(gradients.values())).device
        return torch.zeros((), dtype=torch.float64, device=device)
    return torch.stack(parts).sum()


def clipping(norm: Tensor, clip_norm: float) -> Tensor:
    """Return what gradients of a global ``norm`` are multiplied by, fp32 of shape (): exactly 1 within the limit."""
    return (clip_norm / norm).clamp(max=1.0).to(torch.float32)
