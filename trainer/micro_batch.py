"""Micro-batches: the rows of a step in pieces of a fixed size, each computed on one rank, with losses summed over all.

Their size and order never depend on the number of ranks (``trainer.batch.micro_batches``). A rank with fewer of them
adds masked ones, which predict nothing, so that every rank calls the same collectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.attention import Backend, lay_out
from trainer.batch import IGNORE, NO_DOCUMENT, Batch, Placed, StepPlan
from trainer.rope import Rope

Losses = dict[str, tuple[float, int]]
"""By domain: mean loss in nats, and the number of targets that it is a mean of."""

_MASKED_TOKENS = 128


def most_per_rank(rows: int, micro_batch_rows: int, ranks: int) -> int:
    """Return the number of micro-batches on the rank that has the most."""
    return math.ceil(math.ceil(rows / micro_batch_rows) / ranks)


def filled(batches: Sequence[Batch], count: int, context_tokens: int) -> list[Batch]:
    """Return the micro-batches of a rank, filled up with masked ones to ``count``."""
    return [*batches, *(masked(context_tokens) for _ in range(count - len(batches)))]


def masked(context_tokens: int) -> Batch:
    """Return a micro-batch of one short row that predicts nothing."""
    shape = (1, min(context_tokens, _MASKED_TOKENS))
    plan = StepPlan(shape[1], (), np.full(1, NO_DOCUMENT, np.int64), Placed.joined([]))
    return Batch(plan, np.zeros(shape, np.int64), np.full(shape, IGNORE, np.int64))


def pinned(batch: Batch, pin: Callable[[Tensor], Tensor] = Tensor.pin_memory) -> Batch:
    """Return a micro-batch whose arrays lie in pinned memory, from which a GPU copies without waiting for the host.

    Whoever computes it must keep it until the GPU has copied from it, as until a loss is read back.
    """
    # A view keeps its tensor, and with it the pinned memory.
    tokens, targets, document, positions = (
        pin(torch.from_numpy(array)).numpy() for array in (batch.tokens, batch.targets, batch.document, batch.positions)
    )
    return Batch.with_segments(batch.plan, tokens, targets, document, positions)


def losses_of(model: nn.Module, batch: Batch, rope: Rope, backend: Backend, device: torch.device) -> Tensor:
    """Return the loss of each token, fp32 of shape (rows, context), 0 where the target is ignored."""
    layout = lay_out(torch.from_numpy(batch.document), backend, device)
    tokens, positions, targets = (
        torch.from_numpy(array).to(device, non_blocking=True)
        for array in (batch.tokens, batch.positions, batch.targets)
    )
    losses: Tensor = model(tokens, positions, layout, rope, targets)
    return losses


class Tally:
    """Sums of losses and counts of targets by domain, in float64, over micro-batches and then over ranks."""

    def __init__(self, domains: Sequence[str], device: torch.device) -> None:
        self._domains = tuple(domains)
        self.sums = torch.zeros(2, len(self._domains), dtype=torch.float64, device=device)
        """Losses and targets, each by domain, of this rank alone until they are reduced."""

    def add(self, batch: Batch, losses: Tensor) -> None:
        """Add the losses of a micro-batch, of shape (rows, context)."""
        counts = torch.from_numpy((batch.targets != IGNORE).sum(1))
        rows = torch.stack((losses.detach().double().sum(1), counts.to(losses.device).double()))
        # Rows without a domain are padding: they add zeros, so it does not matter to which domain.
        self.sums.index_add_(1, torch.from_numpy(batch.domain.clip(min=0)).to(losses.device), rows)

    def reduce(self) -> Losses:
        """Return mean loss and number of targets over all ranks, for each domain that has targets."""
        dist.all_reduce(self.sums)
        return by_domain(self._domains, *self.sums.tolist())


def by_domain(domains: Sequence[str], sums: Sequence[float], counts: Sequence[float]) -> Losses:
    """Return mean loss and number of targets of each domain that has targets."""
    return {
        domain: (total / count, int(count)) for domain, total, count in zip(domains, sums, counts, strict=True) if count
    }


def mean_loss(by_domain: Losses) -> float:
    """Return the mean loss over all targets; NaN if there are none."""
    count = sum(targets for _, targets in by_domain.values())
    return sum(loss * targets for loss, targets in by_domain.values()) / count if count else float("nan")
