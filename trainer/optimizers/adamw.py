"""AdamW (arXiv 1711.05101) by torch's fused kernel, which also clips and skips."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from shards.training import TrainSettings
from trainer.optimizers.base import Masters, State


class AdamW:
    """Elementwise, so it needs no rows of other ranks. A fused kernel reads and writes every value once."""

    def __init__(self, masters: Masters, settings: TrainSettings, decays: Callable[[str], bool]) -> None:
        """Take the masters; weight decay applies to the names that ``decays``."""
        # These share memory with the masters.
        self._parameters = {name: nn.Parameter(rows) for name, rows in masters.rows.items()}
        self._first = {name: masters.like(name) for name in masters.rows}
        self._second = {name: masters.like(name) for name in masters.rows}
        by_decay: dict[float, list[nn.Parameter]] = {}
        for name, parameter in self._parameters.items():
            by_decay.setdefault(settings.weight_decay if decays(name) else 0.0, []).append(parameter)
        self._adam = torch.optim.AdamW(
            [{"params": parameters, "weight_decay": decay} for decay, parameters in by_decay.items()],
            lr=0.0,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=True,
        )
        self.set_updates(0)

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update the masters; see ``Optimizer``."""
        for name, parameter in self._parameters.items():
            parameter.grad = gradients[name]
        for group in self._adam.param_groups:
            group["lr"] = rate
        # What a gradient scaler for fp16 sets: the kernel divides by the one, and does nothing where the other is 1.
        self._adam.grad_scale = scale.reciprocal()  # type: ignore[attr-defined]
        self._adam.found_inf = 1.0 - ok.to(torch.float32)  # type: ignore[attr-defined]
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, State]:
        """Return both moments of every parameter."""
        return {f"first_moment.{name}": state for name, state in self._first.items()} | {
            f"second_moment.{name}": state for name, state in self._second.items()
        }

    @property
    def updates(self) -> int:
        """Updates made so far; waits for the device."""
        first = next(iter(self._parameters.values()))
        return int(self._adam.state[first]["step"].item())

    def set_updates(self, updates: int) -> None:
        """Set how many updates the moments have seen, for their bias correction."""
        for name, parameter in self._parameters.items():
            self._adam.state[parameter] = {
                "step": torch.tensor(float(updates), device=parameter.device),
                "exp_avg": self._first[name].tensor,
                "exp_avg_sq": self._second[name].tensor,
            }
