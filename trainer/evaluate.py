"""Loss by domain on held-out documents, which training never sees."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import nn

from shards.permute import Permutation, derive_key
from shards.reader import ShardSet
from trainer.attention import Backend
from trainer.batch import Batch, Placed, StepPlan, assemble, micro_batches
from trainer.cursor import Group
from trainer.micro_batch import Losses, Tally, filled, losses_of, most_per_rank
from trainer.order import Int64Array
from trainer.packing import Spans, pack
from trainer.rope import Rope

_SAMPLE: Final = "held-out sample"
_LOOK_DOCUMENTS: Final = 4_096


def held_out_plan(shards: ShardSet, context_tokens: int, max_tokens: int) -> StepPlan:
    """Plan rows of held-out documents of each domain, up to ``max_tokens`` tokens but at least one document.

    The documents are a uniform sample: the first ones in shard order would be of the first files of a crawl. They are
    the same in any run on these shards and at any context length, and every token except a document's first is a target
    once. So the losses of phases with different context lengths are over the same tokens.
    """
    placed: list[Placed] = []
    domains: list[int] = []
    for index, domain in enumerate(shards.domains):
        numbers = sample_of(shards, domain, max_tokens)
        lengths = shards.lengths(domain, "held_out", numbers)
        group = Group(pack(Spans.whole(lengths), context_tokens, 0), numbers, lengths)
        rows = len(domains) + np.arange(group.rows.rows)
        if len(rows):
            placed.append(Placed.of_group(group, 0, rows, index))
            domains += [index] * len(rows)
    return StepPlan(context_tokens, shards.domains, np.array(domains, np.int64), Placed.joined(placed))


def sample_of(shards: ShardSet, domain: str, max_tokens: int) -> Int64Array:
    """Return the held-out documents of a domain that are evaluated, in the order of a permutation, int64 of shape (n,).

    As many as ``max_tokens`` tokens hold, but at least one; a larger limit adds documents and takes none away.
    """
    count = shards.documents(domain, "held_out")
    order = Permutation(count, derive_key(_SAMPLE, domain))
    parts: list[Int64Array] = [np.empty(0, np.int64)]
    left = max_tokens
    for begin in range(0, count, _LOOK_DOCUMENTS):
        part = order(np.arange(begin, min(begin + _LOOK_DOCUMENTS, count)))
        ends = np.cumsum(shards.lengths(domain, "held_out", part))
        kept = int(np.searchsorted(ends, left, side="right"))
        parts.append(part[: max(kept, 1) if begin == 0 else kept])
        if kept < len(part):
            break
        left -= int(ends[-1])
    return np.concatenate(parts)


class HeldOut:
    """Evaluates a model on the held-out documents. All ranks call it together."""

    def __init__(self, shards: ShardSet, max_tokens: int, rank: int, ranks: int, device: torch.device) -> None:
        self._shards, self._max_tokens = shards, max_tokens
        self._rank, self._ranks, self._device = rank, ranks, device

    @torch.no_grad()
    def __call__(self, model: nn.Module, context_tokens: int, rows: int, rope: Rope, backend: Backend) -> Losses:
        """Return the losses at a context length, computed ``rows`` rows at a time; empty if nothing is held out."""
        plan = held_out_plan(self._shards, context_tokens, self._max_tokens)
        parts = micro_batches(plan.rows, rows, self._rank, self._ranks)
        most = most_per_rank(plan.rows, rows, self._ranks)
        batches: list[Batch] = [assemble(self._shards, plan.part(part), "held_out") for part in parts]
        tally = Tally(self._shards.domains, self._device)
        for batch in filled(batches, most, context_tokens):
            tally.add(batch, losses_of(model, batch, rope, backend, self._device))
        return tally.reduce()
