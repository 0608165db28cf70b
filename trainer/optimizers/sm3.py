"""SM3-II with momentum (arXiv 1901.11150): Adagrad whose second moments are covered by rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizers.base import Elementary, Masters, State, scaled, settle

# Where a weight has never had a gradient, its step is 0 / 0: nothing, in the paper.
_TINY = 1e-30


class SM3(Elementary):
    """A matrix keeps one accumulator per row and one per column; a vector keeps one per entry.

    A column's accumulator is a maximum over rows, which may lie on several ranks: one collective a step.
    """

    def __init__(self, masters: Masters, settings: TrainSettings, decays: Callable[[str], bool]) -> None:
        """Take the masters; weight decay applies to the names that ``decays``."""
        super().__init__(masters, settings.weight_decay, decays)
        self._momentum, self._state = settings.momentum_of("sm3"), self.like("momentum")
        self._matrices = [name for name, shape in masters.shapes.items() if len(shape) == 2]
        for name, rows in masters.rows.items():
            shape = masters.shapes[name]
            self._state[f"row.{name}"] = State(rows.new_zeros(rows.shape[:1]), shape[:1], sharded=True)
            if name in self._matrices:
                self._state[f"column.{name}"] = State(rows.new_zeros(shape[1:]), shape[1:], sharded=False)

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update the masters; see ``Optimizer``."""
        columns: dict[str, Tensor] = {}
        for name, rows in self.masters.rows.items():
            gradient, row = scaled(gradients[name], scale, ok), self._state[f"row.{name}"].tensor
            if name in self._matrices:
                column = self._state[f"column.{name}"].tensor
                second = torch.minimum(row[:, None], column[None]) + gradient.square()
                settle(ok, row, second.amax(1))
                columns[name] = second.amax(0) if len(rows) else torch.zeros_like(column)
            else:
                second = row + gradient.square()
                settle(ok, row, second)
            self._move(name, gradient / (second.sqrt() + _TINY), rate, ok)
        self._take_largest(columns, ok)
        self.count += ok

    def _move(self, name: str, update: Tensor, rate: float, ok: Tensor) -> None:
        rows, momentum = self.masters.rows[name], self._state[f"momentum.{name}"].tensor
        settle(ok, momentum, momentum.lerp(update, 1 - self._momentum))
        settle(ok, rows, rows.mul(1 - rate * self.decay[name]).add_(momentum, alpha=-rate))

    def _take_largest(self, columns: dict[str, Tensor], ok: Tensor) -> None:
        if not columns:
            return
        largest = torch.cat(list(columns.values()))
        if self.masters.group is not None:
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.masters.group)
        for name, part in zip(columns, torch.split(largest, [len(one) for one in columns.values()]), strict=True):
            settle(ok, self._state[f"column.{name}"].tensor, part)

    def state(self) -> dict[str, State]:
        """Return momentum, row and column accumulators."""
        return dict(self._state)
