"""Lion (arXiv 2302.06675, algorithm 2): the sign of an interpolated momentum, with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizers.base import Elementary, Masters, State, scaled, settle


class Lion(Elementary):
    """Elementwise. Its steps are as large as the rate, so it wants a 3 to 10 times smaller one than AdamW."""

    def __init__(self, masters: Masters, settings: TrainSettings, decays: Callable[[str], bool]) -> None:
        """Take the masters; weight decay applies to the names that ``decays``."""
        super().__init__(masters, settings.weight_decay, decays)
        self._betas, self._state = (settings.beta1, settings.beta2), self.like("momentum")

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update the masters; see ``Optimizer``."""
        for name, rows in self.masters.rows.items():
            gradient, momentum = scaled(gradients[name], scale, ok), self._state[f"momentum.{name}"].tensor
            direction = momentum.lerp(gradient, 1 - self._betas[0]).sign_()
            settle(ok, rows, rows.mul(1 - rate * self.decay[name]).add_(direction, alpha=-rate))
            settle(ok, momentum, momentum.lerp(gradient, 1 - self._betas[1]))
        self.count += ok

    def state(self) -> dict[str, State]:
        """Return the momentum of every parameter."""
        return dict(self._state)
