"""Activation checkpointing: what a block keeps for its backward pass, and what it computes again there.

``blocks`` keeps the input of every ``every``-th block and runs that many forward again (arXiv 1604.06174);
``selective`` keeps the results of matrix products and attention, which cost most to compute, and repeats the rest
(arXiv 2205.05198). The same operators run on the same values, so gradients have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from shards.training import Recompute, TrainSettings

_ATEN: Final = torch.ops.aten

# Results that are kept: of what costs arithmetic, and of attention on every device.
_KEPT: Final = frozenset(
    {
        _ATEN.mm.default,
        _ATEN.bmm.default,
        _ATEN.addmm.default,
        _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
        _ATEN._scaled_dot_product_flash_attention.default,
        _ATEN._scaled_dot_product_efficient_attention.default,
        _ATEN._scaled_dot_product_cudnn_attention.default,
        torch.ops.higher_order.flex_attention,
    }
)


@dataclass(frozen=True)
class Recomputation:
    """What is computed again: nothing, all but the results of products, or ``every`` blocks together."""

    how: Recompute = "none"
    every: int = 1

    @classmethod
    def of(cls, training: TrainSettings) -> Recomputation:
        """Return what the settings ask for."""
        return cls(training.recompute, training.recompute_every)

    def block(self, forward: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Run the forward of one block, from inside, so that what surrounds a block happens once."""
        if not torch.is_grad_enabled() or self.how == "none" or self.every > 1:
            return forward(*arguments)
        if self.how == "blocks":
            return _checkpointed(forward, *arguments)
        contexts = partial(create_selective_checkpoint_contexts, _policy)
        return _checkpointed(forward, *arguments, context_fn=contexts)

    def segments(self, forwards: list[Callable[..., Tensor]], states: Tensor, *arguments: Any) -> Tensor:
        """Run blocks one after another, segment by segment where several are recomputed together."""
        if not torch.is_grad_enabled() or self.every == 1:
            return _chain(forwards, states, *arguments)
        for first in range(0, len(forwards), self.every):
            states = _checkpointed(partial(_chain, forwards[first : first + self.every]), states, *arguments)
        return states


def _chain(forwards: list[Callable[..., Tensor]], states: Tensor, *arguments: Any) -> Tensor:
    for forward in forwards:
        states = forward(states, *arguments)
    return states


def _checkpointed(forward: Callable[..., Tensor], *arguments: Any, **options: Any) -> Tensor:
    # No random numbers are drawn in a forward pass: saving their state would only make the device wait.
    result: Tensor = checkpoint(forward, *arguments, use_reentrant=False, preserve_rng_state=False, **options)
    return result


def _policy(context: Any, operator: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
