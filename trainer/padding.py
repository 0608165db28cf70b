"""Domains of whose weight most becomes padding, because they are too small for a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from trainer.cursor import Cursor

_LEAST_FILL: Final = 0.5


@dataclass(frozen=True)
class Padded:
    """A domain whose rows are mostly padding in a phase.

    Attributes:
        phase: the phase's name.
        domain: the domain's name.
        weight: its largest weight in the phase.
        fill: the share of its rows' slots that hold a token.
        documents: documents in the domain, of ``tokens`` tokens together.
        tokens: see ``documents``.
        context_tokens: slots of a row.
    """

    phase: str
    domain: str
    weight: float
    fill: float
    documents: int
    tokens: int
    context_tokens: int

    def __str__(self) -> str:
        return (
            f"{1 - self.fill:.0%} of the rows of domain {self.domain!r} in phase {self.phase!r} is padding, and so is "
            f"that share of its weight of {self.weight:.1%}: its {self.documents:,} documents have {self.tokens:,} "
            f"tokens, and a row has {self.context_tokens:,}. Add documents, merge it with another domain, or lower its "
            "weight"
        )


def mostly_padding(shards: ShardSet, schedule: Schedule, seed: int, window_shards: int | None = None) -> list[Padded]:
    """Return the domains whose rows are less than half full, in each phase that gives them a weight.

    Looks at the first documents that each phase would pack, so it takes milliseconds for each phase and domain.
    """
    found = []
    for phase in schedule.phases:
        context = phase.context_tokens
        for domain, *weights in zip(schedule.domains, phase.weights_start, phase.weights_end, strict=True):
            if not max(weights):
                continue
            taken = Cursor(shards, domain, seed, window_shards=window_shards).take(context)
            if taken is None:
                continue
            group, _ = taken
            fill = int(group.lengths.sum()) / (group.rows.rows * context)
            if fill < _LEAST_FILL:
                sizes = shards.documents(domain), shards.token_count(domain)
                found.append(Padded(phase.name, domain, max(weights), fill, *sizes, context))
    return found
