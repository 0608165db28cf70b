"""Muon: momentum made orthogonal, for the matrices of blocks; AdamW for everything else.

The update and its Newton-Schulz iteration are those of Jordan et al. (2024) as ``torch.optim.Muon`` defines them; its
size is that of AdamW's (0.2 sqrt(max(rows, columns)), arXiv 2502.16982), so that one rate serves both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from shards.training import TrainSettings
from trainer.optimizers.adamw import AdamW
from trainer.optimizers.base import Masters, State, scaled, settle

_COEFFICIENTS: Final = (3.4445, -4.775, 2.0315)
_ITERATIONS: Final = 5
_TINY: Final = 1e-7
_RMS: Final = 0.2


class Muon:
    """A matrix has to be whole to be made orthogonal.

    Where its rows lie on several ranks, as many matrices as there are ranks travel together: each rank gathers one,
    works on it, and sends the rows back, so that no two ranks do the same work.
    """

    def __init__(self, masters: Masters, settings: TrainSettings, decays: Callable[[str], bool]) -> None:
        """Take the masters; weight decay applies to the names that ``decays``."""
        names = [name for name, shape in masters.shapes.items() if name.startswith("blocks.") and len(shape) == 2]
        rest = [name for name in masters.rows if name not in names]
        self._masters = masters
        self._decay = {name: settings.weight_decay if decays(name) else 0.0 for name in names}
        self._momentum = settings.momentum_of("muon")
        self._state = {name: masters.like(name) for name in names}
        self._adamw = AdamW(replace(masters, rows={name: masters.rows[name] for name in rest}), settings, decays)
        by_shape: dict[torch.Size, list[str]] = {}
        for name in names:
            by_shape.setdefault(masters.shapes[name], []).append(name)
        self._by_shape = by_shape

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update the masters; see ``Optimizer``."""
        for shape, names in self._by_shape.items():
            for together in self._batches(names):
                updates = [self._direction(gradients[name], name, scale, ok) for name in together]
                for name, update in zip(together, self._orthogonal(updates, shape), strict=True):
                    rows, size = self._masters.rows[name], rate * _RMS * math.sqrt(max(shape))
                    settle(ok, rows, rows.mul(1 - rate * self._decay[name]).add_(update, alpha=-size))
        self._adamw.step(gradients, rate, scale, ok)

    def _batches(self, names: list[str]) -> Iterator[list[str]]:
        """Yield as many matrices at a time as there are ranks that share them."""
        ranks = 1 if self._masters.group is None else dist.get_world_size(self._masters.group)
        for first in range(0, len(names), ranks):
            yield names[first : first + ranks]

    def _direction(self, gradient: Tensor, name: str, scale: Tensor, ok: Tensor) -> Tensor:
        """Update the momentum and return where it points, looking one step ahead (Nesterov)."""
        gradient, momentum = scaled(gradient, scale, ok), self._state[name].tensor
        settle(ok, momentum, momentum.lerp(gradient, 1 - self._momentum))
        return gradient.lerp(momentum, self._momentum)

    def _orthogonal(self, updates: list[Tensor], shape: torch.Size) -> list[Tensor]:
        """Return this rank's rows of each update, made orthogonal as a whole."""
        group = self._masters.group
        if group is None:
            return [orthogonal(update) for update in updates]
        ranks, owned = dist.get_world_size(group), len(updates[0])
        share = -(-shape[0] // ranks)
        # One slot for each rank, equally long; ranks without a matrix work on zeros.
        sent = updates[0].new_zeros(ranks, share, shape[1])
        for slot, update in zip(sent, updates, strict=False):
            slot[:owned] = update
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        whole = orthogonal(received.view(-1, shape[1])[: shape[0]])
        received.view(-1, shape[1])[: shape[0]] = whole
        dist.all_to_all_single(sent, received, group=group)
        return [slot[:owned] for slot, _ in zip(sent, updates, strict=False)]

    def state(self) -> dict[str, State]:
        """Return the momentum of matrices, and AdamW's moments of the rest."""
        return {f"momentum.{name}": state for name, state in self._state.items()} | self._adamw.state()

    @property
    def updates(self) -> int:
        """Updates made so far; waits for the device."""
        return self._adamw.updates

    def set_updates(self, updates: int) -> None:
        """Set the number of updates that the state has seen."""
        self._adamw.set_updates(updates)


def orthogonal(matrix: Tensor) -> Tensor:
    """Return U S V^T of fp32 ``matrix`` with all singular values S near 1, by five Newton-Schulz iterations.

    They run in bf16 on a GPU, which is what their coefficients were chosen for, and in fp32 elsewhere.
    """
    a, b, c = _COEFFICIENTS
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide.bfloat16() if matrix.is_cuda else wide
    wide = wide / wide.norm().clamp(min=_TINY)
    for _ in range(_ITERATIONS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    wide = wide.to(matrix.dtype)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide
