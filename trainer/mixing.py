"""Mixing: which domain provides the next row, so that each domain's tokens follow its weight as closely as can be.

This is Tijdeman's solution of the chairman assignment problem (Discrete Mathematics 32, 1980): among the domains that
are owed 1 / (2m - 2) of a row, of m domains, the one that is first owed all but as much of another. So no domain is
ever off its weight by more than 1 - 1 / (2m - 2) rows, and no rule can promise less. Always serving the largest debt
would let the debts of several domains come due together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from shards.schedule.schedule import Schedule

_ROUNDING: Final = 1e-9
"""A debt that comes to exactly the margin must not be missed by a rounding error: somebody has to be served."""


class Mixer:
    """Chooses domains row by row. Its only state is ``served``, the row slots that each domain has provided.

    At a fixed context length, and while none is exhausted, the tokens served from each of m domains are always within
    1 - 1 / (2m - 2) rows of the integral of its weight.

    Args:
        schedule: the schedule, with weights per domain.
        served: row slots provided so far, in the order of ``schedule.domains``.
    """

    def __init__(self, schedule: Schedule, served: Sequence[int]) -> None:
        self.served = list(served)
        domains = range(len(self.served))
        # By phase and domain: the weight at its beginning, and by how much it grows with each row slot.
        self._lines = [[(phase.weight(d, 0), phase.slope(d)) for d in domains] for phase in schedule.phases]
        self._begin = [schedule.past_tokens]
        self._owed_before = [list(schedule.ideal_tokens(schedule.past_tokens))]
        for phase in schedule.phases:
            before = self._owed_before[-1]
            self._owed_before.append([owed + phase.owed(domain, phase.tokens) for domain, owed in enumerate(before)])
            self._begin.append(self._begin[-1] + phase.tokens)
        mixed = sum(after > before for before, after in zip(self._owed_before[0], self._owed_before[-1], strict=True))
        self._margin = 1 / (2 * mixed - 2) if mixed > 1 else 0.0
        self._phase = 0
        self._due: list[float | None] = [None] * len(self.served)
        self._context = 0
        self._available = list(range(len(self.served)))

    def exhaust(self, domain: int) -> None:
        """Exclude a domain for good, because it has no more rows."""
        if domain in self._available:
            self._available.remove(domain)

    def choose(self, tokens: int, context_tokens: int) -> int:
        """Return the domain of the row that begins after ``tokens`` row slots; -1 if no domain has rows left."""
        if not self._available:
            return -1
        while self._phase < len(self._lines) - 1 and tokens >= self._begin[self._phase + 1]:
            self._phase += 1
        if context_tokens != self._context:
            self._context = context_tokens
            self._due = [None] * len(self.served)
        margin = self._margin * context_tokens * (1 - _ROUNDING)
        best, best_due = -1, math.inf
        for domain in self._available:
            debt = self._owed(domain, tokens + context_tokens) - self.served[domain]
            if debt < margin or debt <= 0:
                continue
            due = self._due[domain]
            if due is None:
                due = self._due[domain] = self._reaches(domain, self.served[domain] + context_tokens - margin)
            if best < 0 or due < best_due:
                best, best_due = domain, due
        if best < 0:
            # Only after domains ran out, or the context changed: all are ahead of what is due, so the least ahead is.
            best = max(self._available, key=lambda d: self._owed(d, tokens + context_tokens) - self.served[d])
        return best

    def serve(self, domain: int, context_tokens: int) -> None:
        """Record that a domain provided a row."""
        self.served[domain] += context_tokens
        self._due[domain] = None

    def _owed(self, domain: int, tokens: int) -> float:
        """Return the integral of the domain's weight up to ``tokens``, which lies in this phase or at its end."""
        here = tokens - self._begin[self._phase]
        start, slope = self._lines[self._phase][domain]
        return self._owed_before[self._phase][domain] + here * (start + slope * here / 2)

    def _reaches(self, domain: int, target: float) -> float:
        """Return the row slots at which the integral of the domain's weight reaches ``target``; infinity if never."""
        for index in range(self._phase, len(self._lines)):
            # The last phase is extended beyond its end, so that what is due does not depend on where exactly it ends.
            if index < len(self._lines) - 1 and self._owed_before[index + 1][domain] < target:
                continue
            start, slope = self._lines[index][domain]
            left = target - self._owed_before[index][domain]
            # Solves start * x + slope / 2 * x**2 == left, in the form without cancellation.
            root = math.sqrt(max(0.0, start * start + 2 * slope * left))
            return self._begin[index] + (2 * left / (start + root) if start + root > 0 else math.inf)
        return math.inf
