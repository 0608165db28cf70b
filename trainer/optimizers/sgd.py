"""Stochastic gradient descent with momentum, as ``torch.optim.SGD`` defines it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizers.base import Elementary, Masters, State, scaled, settle


class SGD(Elementary):
    """Elementwise. Weight decay is added to the gradient, so momentum sees it."""

    def __init__(self, masters: Masters, settings: TrainSettings, decays: Callable[[str], bool]) -> None:
        """Take the masters; weight decay applies to the names that ``decays``."""
        super().__init__(masters, settings.weight_decay, decays)
        self._momentum, self._state = settings.momentum_of("sgd"), self.like("momentum")

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update the masters; see ``Optimizer``."""
        for name, rows in self.masters.rows.items():
            gradient = scaled(gradients[name], scale, ok).add_(rows, alpha=self.decay[name])
            momentum = self._state[f"momentum.{name}"].tensor
            settle(ok, momentum, momentum * self._momentum + gradient)
            settle(ok, rows, rows.add(momentum, alpha=-rate))
        self.count += ok

    def state(self) -> dict[str, State]:
        """Return the momentum of every parameter."""
        return dict(self._state)
