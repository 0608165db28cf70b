"""Micro-batches: a step's rows in pieces of a fixed size, run on the rank that they fell to, their losses summed again.

Their size and order never depend on the number of ranks (``trainer.batch.micro_batches``). A rank with fewer of them
runs masked ones, which predict nothing, so that every rank calls the same collectives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.attention import Way, lay_out
from trainer.batch import IGNORE, NO_DOCUMENT, Batch, Placed, StepPlan
from trainer.rope import Rope

Losses = dict[str, tuple[float, int]]
"""By domain: mean loss in nats, and the number of targets that it is over."""

_MASKED_TOKENS = 128


def most_per_rank(rows: int, micro_batch_rows: int, ranks: int) -> int:
    """Return the micro-batches of the rank that has most."""
    return math.ceil(math.ceil(rows / micro_batch_rows) / ranks)


def filled(batches: Sequence[Batch], count: int, context_tokens: int) -> list[Batch]:
    """Return a rank's micro-batches, filled up with masked ones to ``count``."""
    return [*batches, *(masked(context_tokens) for _ in range(count - len(batches)))]


def masked(context_tokens: int) -> Batch:
    """Return one short row that predicts nothing."""
    shape = (1, min(context_tokens, _MASKED_TOKENS))
    plan = StepPlan(shape[1], (), np.full(1, NO_DOCUMENT, np.int64), Placed.joined([]))
    return Batch(plan, np.zeros(shape, np.int64), np.full(shape, IGNORE, np.int64))


def target_count(batches: Sequence[Batch], device: torch.device) -> int:
    """Return the number of targets in the micro-batches of all ranks."""
    count = torch.tensor([sum(int((batch.targets != IGNORE).sum()) for batch in batches)], device=device)
    dist.all_reduce(count)
    return int(count.item())


def losses_of(model: nn.Module, batch: Batch, rope: Rope, way: Way, device: torch.device) -> Tensor:
    """Return the loss of every token, fp32 of shape (rows, context), 0 where ignored."""
    layout = lay_out(torch.from_numpy(batch.document), way, device)
    tokens, positions, targets = (
        torch.from_numpy(array).to(device, non_blocking=True)
        for array in (batch.tokens, batch.positions, batch.targets)
    )
    losses: Tensor = model(tokens, positions, layout, rope, targets)
    return losses


class Tally:
    """Sums of losses and counts of targets by domain, in float64, over micro-batches and then ranks."""

    def __init__(self, domains: Sequence[str], device: torch.device) -> None:
        self._domains = tuple(domains)
        self._sums = torch.zeros(2, len(self._domains), dtype=torch.float64, device=device)

    def add(self, batch: Batch, losses: Tensor) -> None:
        """Add a micro-batch's losses (rows, context)."""
        counts = torch.from_numpy((batch.targets != IGNORE).sum(1))
        rows = torch.stack((losses.detach().double().sum(1), counts.to(losses.device).double()))
        # Rows without a domain are padding and add nothing, to whichever domain.
        self._sums.index_add_(1, torch.from_numpy(batch.domain.clip(min=0)).to(losses.device), rows)

    def reduce(self) -> Losses:
        """Return the mean loss and targets of every domain that had targets, over all ranks."""
        dist.all_reduce(self._sums)
        sums, counts = self._sums.tolist()
        return {
            domain: (total / count, int(count))
            for domain, total, count in zip(self._domains, sums, counts, strict=True)
            if count
        }


def mean_loss(by_domain: Losses) -> float:
    """Return the mean loss over all targets, NaN if there are none."""
    count = sum(targets for _, targets in by_domain.values())
    return sum(loss * targets for loss, targets in by_domain.values()) / count if count else float("nan")
