"""One phase of a resolved schedule: its length, weights, learning rate and positions, as functions of tokens served."""

from __future__ import annotations

import math
from typing import Literal

import pydantic


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Rope(_Model):
    """How positions are encoded, with every value resolved. ``factor`` is 1 for ``none`` and ``theta``."""

    kind: Literal["none", "theta", "pi", "yarn"]
    theta: float
    factor: float
    original_context_tokens: int


class LearningRate(_Model):
    """The learning rate of a phase, with every value resolved.

    ``shape`` is that of the decay from ``start`` to ``end``. It takes the last ``decay_share`` of the phase's tokens;
    without one, all that follows the warm-up.
    """

    shape: Literal["constant", "linear", "cosine", "one_minus_sqrt"]
    start: float
    end: float
    warmup_tokens: int
    decay_share: float | None = None

    def at(self, tokens: int, phase_tokens: int, batch_tokens: int) -> float:
        """Return the rate of the step that begins ``tokens`` into the phase; exactly ``end`` at the phase's end.

        Warm-up counts the step itself, so that the first step of a run has a rate above zero.
        """
        if tokens < self.warmup_tokens:
            return self.start * min(1.0, (tokens + batch_tokens) / self.warmup_tokens)
        if self.shape == "constant":
            return self.start
        begin: float = self.warmup_tokens
        if self.decay_share is not None:
            begin = max(begin, phase_tokens * (1 - self.decay_share))
        progress = min(1.0, max(0.0, (tokens - begin) / (phase_tokens - begin))) if phase_tokens > begin else 1.0
        match self.shape:
            case "linear":
                remaining = 1.0 - progress
            case "cosine":
                remaining = 0.5 * (1.0 + math.cos(math.pi * progress))
            case "one_minus_sqrt":
                remaining = 1.0 - math.sqrt(progress)
        return self.end + (self.start - self.end) * remaining


class Phase(_Model):
    """One phase of a resolved schedule. Weights are in the order of ``Schedule.domains`` and add up to 1.

    Where a branch continues a phase, ``done_tokens`` of it lie in the past, and ``tokens`` are what is left. Weights
    and rate are those of the phase as a whole.
    """

    name: str
    tokens: int
    context_tokens: int
    batch_tokens: int
    weights_start: tuple[float, ...]
    weights_end: tuple[float, ...]
    rope: Rope
    learning_rate: LearningRate
    done_tokens: int = 0

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.tokens // self.batch_tokens

    def owed(self, domain: int, tokens: float) -> float:
        """Return the integral of a domain's weight over the first ``tokens`` row slots of what is left."""
        return tokens * (self.weight(domain, 0) + self.slope(domain) * tokens / 2)

    def slope(self, domain: int) -> float:
        """Return by how much a domain's weight grows with each row slot."""
        return (self.weights_end[domain] - self.weights_start[domain]) / (self.done_tokens + self.tokens)

    def weight(self, domain: int, tokens: int) -> float:
        """Return a domain's weight after the first ``tokens`` row slots of what is left."""
        return self.weights_start[domain] + self.slope(domain) * (self.done_tokens + tokens)

    @property
    def rows(self) -> int:
        """Rows of ``context_tokens`` in each step."""
        return self.batch_tokens // self.context_tokens
