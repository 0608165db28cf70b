"""An exponential moving average of the weights, beside any optimizer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trainer.optimizers.base import Masters, Optimizer, State


class Averaged:
    """Updates by another optimizer, and averages the masters after every update that was ok."""

    def __init__(self, optimizer: Optimizer, masters: Masters, decay: float) -> None:
        """Begin the average at the masters as they are."""
        self._optimizer, self._masters, self._decay = optimizer, masters, decay
        self.rows = {name: rows.clone() for name, rows in masters.rows.items()}

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update masters and average; see ``Optimizer``."""
        self._optimizer.step(gradients, rate, scale, ok)
        weight = (1 - self._decay) * ok.to(torch.float32)
        for name, rows in self.rows.items():
            rows.lerp_(self._masters.rows[name], weight)

    def state(self) -> dict[str, State]:
        """Return the state of the optimizer, and the average."""
        shapes = self._masters.shapes
        average = {f"average.{name}": State(rows, shapes[name], sharded=True) for name, rows in self.rows.items()}
        return self._optimizer.state() | average

    @property
    def updates(self) -> int:
        """Updates made so far; waits for the device."""
        return self._optimizer.updates

    def set_updates(self, updates: int) -> None:
        """Set the number of updates that the state has seen."""
        self._optimizer.set_updates(updates)
