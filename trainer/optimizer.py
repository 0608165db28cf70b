"""AdamW on the rows that a rank owns, with gradients clipped by their norm over all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shards.training import TrainSettings
from trainer.model import decays


class ShardedAdamW:
    """AdamW (arXiv 1711.05101) over fp32 masters, which it updates in place.

    The update is elementwise, so it needs no rows of other ranks; only the norm does.
    """

    def __init__(self, masters: Mapping[str, Tensor], settings: TrainSettings, group: dist.ProcessGroup | None) -> None:
        """Take ``masters`` by name; ``group`` is the ranks that they are sharded over, None if each rank holds all."""
        self._clip_norm, self._group = settings.clip_norm, group
        # These share memory with the masters.
        self._parameters = {name: nn.Parameter(master) for name, master in masters.items()}
        self._moments = {name: (torch.zeros_like(m), torch.zeros_like(m)) for name, m in masters.items()}
        groups = [
            {"params": [p for n, p in self._parameters.items() if decays(n)], "weight_decay": settings.weight_decay},
            {"params": [p for n, p in self._parameters.items() if not decays(n)], "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(
            [g for g in groups if g["params"]],
            lr=0.0,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=True,
        )
        self.set_steps(0)

    def set_steps(self, steps: int) -> None:
        """Set how many updates the moments have seen, for their bias correction."""
        self.steps = steps
        for name, parameter in self._parameters.items():
            first, second = self._moments[name]
            count = torch.tensor(float(steps), device=parameter.device)
            self._adam.state[parameter] = {"step": count, "exp_avg": first, "exp_avg_sq": second}

    def moments(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield (name, first moment, second moment), fp32 of the masters' shapes; to load them, write in place."""
        for name, (first, second) in self._moments.items():
            yield name, first, second

    def norm(self, gradients: Mapping[str, Tensor]) -> float:
        """Return the L2 norm of the whole gradient over all ranks, summed in float64."""
        squares = [torch.linalg.vector_norm(g, dtype=torch.float64).square() for g in gradients.values() if g.numel()]
        total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)
        if self._group is not None:
            dist.all_reduce(total, group=self._group)
        return math.sqrt(total.item())

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], learning_rate: float) -> float:
        """Update the masters with ``gradients``, which may be modified, and return their norm before clipping.

        If the norm is not finite, nothing is updated: the caller decides what to do.
        """
        norm = self.norm(gradients)
        if not math.isfinite(norm):
            return norm
        scale = self._clip_norm / norm if norm > self._clip_norm else 1.0
        for name, parameter in self._parameters.items():
            parameter.grad = gradients[name].mul_(scale) if scale != 1.0 else gradients[name]
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()
        self.steps += 1
        self._adam.zero_grad(set_to_none=True)
        return norm
