"""Mixing: which domain provides the next row, so that each domain's tokens follow its weight to within one row.

This is Tijdeman's solution of the chairman assignment problem (Discrete Mathematics 32, 1980): among the domains that
are owed tokens, the one whose next row is due first. Always serving the largest debt would let the debts of several
domains come due together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shards.schedule.schedule import Schedule


class Mixer:
    """Chooses domains row by row. Its only state is ``served``, the row slots that each domain has provided.

    At a fixed context length, the tokens served from a domain are always within one row of the integral of its weight.

    Args:
        schedule: the schedule, with weights per domain.
        served: row slots provided so far, in the order of ``schedule.domains``.
    """

    def __init__(self, schedule: Schedule, served: Sequence[int]) -> None:
        self.served = list(served)
        self._phases = schedule.phases
        self._begin = [0]
        self._owed_before = [[0.0] * len(self.served)]
        for phase in schedule.phases:
            ends = zip(phase.weights_start, phase.weights_end, strict=True)
            owed = zip(self._owed_before[-1], ends, strict=True)
            self._owed_before.append([before + phase.tokens * (start + end) / 2 for before, (start, end) in owed])
            self._begin.append(self._begin[-1] + phase.tokens)
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
        while self._phase < len(self._phases) - 1 and tokens >= self._begin[self._phase + 1]:
            self._phase += 1
        if context_tokens != self._context:
            self._context = context_tokens
            self._due = [None] * len(self.served)
        best, best_due = -1, math.inf
        for domain in self._available:
            if self._owed(domain, tokens + context_tokens) <= self.served[domain]:
                continue
            due = self._due[domain]
            if due is None:
                due = self._due[domain] = self._reaches(domain, self.served[domain] + context_tokens)
            if best < 0 or due < best_due:
                best, best_due = domain, due
        if best < 0:
            # Only after domains ran out: the others are all ahead of their weights, so the least ahead is served.
            best = max(self._available, key=lambda d: self._owed(d, tokens + context_tokens) - self.served[d])
        return best

    def serve(self, domain: int, context_tokens: int) -> None:
        """Record that a domain provided a row."""
        self.served[domain] += context_tokens
        self._due[domain] = None

    def _owed(self, domain: int, tokens: int) -> float:
        """Return the integral of the domain's weight up to ``tokens``, which lies in this phase or at its end."""
        phase = self._phases[self._phase]
        start, end = phase.weights_start[domain], phase.weights_end[domain]
        here = tokens - self._begin[self._phase]
        return self._owed_before[self._phase][domain] + here * (start + (end - start) * (here / (2 * phase.tokens)))

    def _reaches(self, domain: int, target: int) -> float:
        """Return the row slots at which the integral of the domain's weight reaches ``target``; infinity if never."""
        for index in range(self._phase, len(self._phases)):
            # The last phase is extended beyond its end, so that what is due does not depend on where exactly it ends.
            if index < len(self._phases) - 1 and self._owed_before[index + 1][domain] < target:
                continue
            phase = self._phases[index]
            start, end = phase.weights_start[domain], phase.weights_end[domain]
            left = target - self._owed_before[index][domain]
            # Solves start * x + (end - start) / (2 * tokens) * x**2 == left, in the form without cancellation.
            root = math.sqrt(max(0.0, start * start + 2 * (end - start) / phase.tokens * left))
            return self._begin[index] + (2 * left / (start + root) if start + root > 0 else math.inf)
        return math.inf
