"""Compute-optimal sizes by the parametric law of Chinchilla, L(N, D) = E + A / N^alpha + B / D^beta, with C = 6 N D.

Constants are the refit of Besiroglu et al. (arXiv 2404.10102). Those printed by Hoffmann et al. (arXiv 2203.15556,
approach 3) contradict table 3 of the same paper: at the compute of its 67 B model they ask for half of its size and
four times its tokens per parameter. Both are here, so that it can be seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

FLOPS_PER_PARAMETER_TOKEN: Final = 6
"""Two for the forward pass and four for the backward pass, of a multiply and an add each (arXiv 2001.08361)."""

RULE_TOKENS_PER_PARAMETER: Final = 20
"""The rule of thumb drawn from table 3 of arXiv 2203.15556."""


@dataclass(frozen=True)
class Law:
    """Constants of the parametric law; losses in nats per token."""

    source: str
    irreducible: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """Return the loss that the law predicts, in nats per token."""
        return float(self.irreducible + self.a / parameters**self.alpha + self.b / tokens**self.beta)

    def optimum(self, flops: float) -> tuple[float, float]:
        """Return (parameters, tokens) with the least loss for so many FLOPs, as derived in arXiv 2203.15556."""
        balance = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        product = flops / FLOPS_PER_PARAMETER_TOKEN
        parameters = balance * product ** (self.beta / (self.alpha + self.beta))
        return parameters, product / parameters

    def tokens_for(self, parameters: float, loss: float) -> float:
        """Return the tokens at which a model of this size reaches a loss; infinity if it never does."""
        left = loss - self.irreducible - self.a / parameters**self.alpha
        return float((self.b / left) ** (1 / self.beta)) if left > 0 else math.inf


BESIROGLU: Final = Law("Besiroglu et al., arXiv 2404.10102", 1.8172, 482.01, 2085.43, 0.3478, 0.3658)
HOFFMANN: Final = Law("Hoffmann et al. as printed, arXiv 2203.15556", 1.69, 406.4, 410.7, 0.34, 0.28)


@dataclass(frozen=True)
class Smaller:
    """A model smaller than the optimum that reaches the same loss by training longer.

    Attributes:
        share: its parameters over those of the optimum.
        parameters: its parameters.
        tokens: tokens that it needs; infinity if it never gets there.
        more_compute: training FLOPs over those of the optimum. A token served afterwards costs ``share`` as much.
    """

    share: float
    parameters: float
    tokens: float
    more_compute: float


def smaller_for_longer(law: Law, flops: float, shares: tuple[float, ...] = (0.75, 0.5, 0.35, 0.25)) -> list[Smaller]:
    """Return what it costs in training to reach the optimum's loss with less parameters."""
    parameters, tokens = law.optimum(flops)
    loss = law.loss(parameters, tokens)
    found = []
    for share in shares:
        longer = law.tokens_for(share * parameters, loss)
        more = share * longer / tokens
        found.append(Smaller(share, share * parameters, longer, more))
    return found


def rule_of_thumb(flops: float) -> tuple[float, float]:
    """Return (parameters, tokens) by twenty tokens per parameter."""
    parameters = math.sqrt(flops / (FLOPS_PER_PARAMETER_TOKEN * RULE_TOKENS_PER_PARAMETER))
    return parameters, RULE_TOKENS_PER_PARAMETER * parameters
