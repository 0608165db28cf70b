"""Adafactor (arXiv 1804.04235) as ``torch.optim.Adafactor`` defines it: second moments factored by rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizers.base import Elementary, Masters, State, scaled, settle

_DECAY: Final = -0.8  # of the second moments, as a power of the step (section 7.2)
_SCALE_FLOOR: Final = 1e-3  # epsilon 2: a parameter near zero moves as if its root mean square were this (table 2)
_TINY: Final = torch.finfo(torch.float32).eps


class Adafactor(Elementary):
    """Without first moments. Steps are relative to the size of a parameter, and the rate is an upper bound.

    Sizes, columns and the norm of an update are over all rows of a parameter, which may lie on several ranks: two
    collectives a step for all parameters together.
    """

    def __init__(self, masters: Masters, settings: TrainSettings, decays: Callable[[str], bool]) -> None:
        """Take the masters; weight decay applies to the names that ``decays``."""
        super().__init__(masters, settings.weight_decay, decays)
        self._state: dict[str, State] = {}
        for name, rows in masters.rows.items():
            shape = masters.shapes[name]
            self._state[f"row.{name}"] = State(rows.new_zeros(rows.shape[:1]), shape[:1], sharded=True)
            if len(shape) == 2:
                self._state[f"column.{name}"] = State(rows.new_zeros(shape[1:]), torch.Size(shape[1:]), sharded=False)

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update the masters; see ``Optimizer``."""
        count = self.count + 1
        weight = count**_DECAY
        safe = {name: scaled(gradients[name], scale, ok) for name in self.masters.rows}
        for name, gradient in safe.items():
            row = self._state[f"row.{name}"].tensor
            fresh = gradient.square() if gradient.ndim == 1 else gradient.square().mean(1)
            settle(ok, row, row.lerp(fresh, weight))
        sums = self._summed({name: self._of_rows(name, gradient) for name, gradient in safe.items()})
        updates = {}
        for name, gradient in safe.items():
            rows, shape = self.masters.rows[name], self.masters.shapes[name]
            row = self._state[f"row.{name}"].tensor
            estimate = row
            if len(shape) == 2:
                column = self._state[f"column.{name}"].tensor
                settle(ok, column, column.lerp(sums[name][2:] / shape[0], weight))
                estimate = row[:, None] * column[None] / (sums[name][1] / shape[0]).clamp(min=_TINY)
            updates[name] = estimate.clamp(min=_TINY**2).rsqrt() * gradient
        norms = self._summed({name: update.square().sum()[None] for name, update in updates.items()})
        for name, update in updates.items():
            rows, size = self.masters.rows[name], self.masters.shapes[name].numel()
            step = (sums[name][0] / size).sqrt().clamp(min=_SCALE_FLOOR) * count.rsqrt().clamp(max=rate)
            step = step / (norms[name][0] / size).sqrt().clamp(min=1.0)
            settle(ok, rows, rows * (1 - rate * self.decay[name]) - step * update)
        self.count += ok

    def _of_rows(self, name: str, gradient: Tensor) -> Tensor:
        """Return sums over this rank's rows: squares of the parameter, row factors, and squares by column."""
        rows = self.masters.rows[name]
        head = torch.stack((rows.square().sum(), self._state[f"row.{name}"].tensor.sum()))
        return head if gradient.ndim == 1 else torch.cat((head, gradient.square().sum(0)))

    def _summed(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return sums over all ranks that own rows."""
        whole = torch.cat(list(parts.values()))
        if self.masters.group is not None:
            dist.all_reduce(whole, group=self.masters.group)
        return dict(zip(parts, torch.split(whole, [len(part) for part in parts.values()]), strict=True))

    def state(self) -> dict[str, State]:
        """Return the factors by row and by column."""
        return dict(self._state)
