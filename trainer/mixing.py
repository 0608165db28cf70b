"""Mixing: which domain gives the next row, so that every domain's tokens follow the schedule's weights to within a row.

The chairman assignment of Tijdeman (Discrete Mathematics 32, 1980): among the domains that are owed something, the one
whose next row is due first. Always serving the largest debt would let debts of several domains come due together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shards.schedule.schedule import Schedule


class Mixer:
    """Chooses domains row by row. Its only state is ``served``, the row slots that each domain has given.

    At one context length, no domain's served tokens are ever a whole row away from the integral of its weights.

    Args:
        schedule: with weights per domain, in tokens.
        served: row slots given so far, in the order of ``schedule.domains``.
    """

    def __init__(self, schedule: Schedule, served: Sequence[int]) -> None:
        self.served = list(served)
        self._stages = schedule.stages
        self._begin = [0]
        self._owed_before = [[0.0] * len(self.served)]
        for stage in schedule.stages:
            ends = zip(stage.weights_start, stage.weights_end, strict=True)
            owed = zip(self._owed_before[-1], ends, strict=True)
            self._owed_before.append([before + stage.tokens * (start + end) / 2 for before, (start, end) in owed])
            self._begin.append(self._begin[-1] + stage.tokens)
        self._stage = 0
        self._due: list[float | None] = [None] * len(self.served)
        self._context = 0
        self._available = list(range(len(self.served)))

    def exhaust(self, domain: int) -> None:
        """Take a domain out of the choice for good: it has no more rows."""
        if domain in self._available:
            self._available.remove(domain)

    def choose(self, tokens: int, context_tokens: int) -> int:
        """Return the domain of the row that begins after ``tokens`` row slots; -1 if none has rows left."""
        if not self._available:
            return -1
        while self._stage < len(self._stages) - 1 and tokens >= self._begin[self._stage + 1]:
            self._stage += 1
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
            # Only where domains ran out: what is left of the others is ahead of its weights, so the least ahead goes.
            best = max(self._available, key=lambda d: self._owed(d, tokens + context_tokens) - self.served[d])
        return best

    def serve(self, domain: int, context_tokens: int) -> None:
        """Record that a domain gave a row."""
        self.served[domain] += context_tokens
        self._due[domain] = None

    def _owed(self, domain: int, tokens: int) -> float:
        """Return the integral of the domain's weight up to ``tokens``, which is in this stage or at its end."""
        stage = self._stages[self._stage]
        start, end = stage.weights_start[domain], stage.weights_end[domain]
        here = tokens - self._begin[self._stage]
        return self._owed_before[self._stage][domain] + here * (start + (end - start) * (here / (2 * stage.tokens)))

    def _reaches(self, domain: int, target: int) -> float:
        """Return the row slots at which the domain's integral reaches ``target``; infinity if it never does."""
        for index in range(self._stage, len(self._stages)):
            # The last stage goes on beyond its end: what is due then does not depend on where exactly the end is.
            if index < len(self._stages) - 1 and self._owed_before[index + 1][domain] < target:
                continue
            stage = self._stages[index]
            start, end = stage.weights_start[domain], stage.weights_end[domain]
            left = target - self._owed_before[index][domain]
            # start * x + (end - start) / (2 * tokens) * x**2 == left, in the form that does not cancel.
            root = math.sqrt(max(0.0, start * start + 2 * (end - start) / stage.tokens * left))
            return self._begin[index] + (2 * left / (start + root) if start + root > 0 else math.inf)
        return math.inf
