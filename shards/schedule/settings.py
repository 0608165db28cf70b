"""The schedule as written in a recipe: strict settings, in which nothing depends on a run's data yet."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import pydantic
from pydantic import Field

DEFAULT_MAX_EPOCHS: Final = 4.0
"""Up to about four epochs, repeated tokens are worth nearly as much as new ones (arXiv 2305.16264)."""

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class RopeSettings(_Model):
    """How positions are encoded in a phase.

    ``none`` leaves RoPE unchanged; ``theta`` only raises its base (arXiv 2309.16039); ``pi`` divides positions by
    ``factor`` (position interpolation, arXiv 2306.15595); ``yarn`` does so for low frequencies (arXiv 2309.00071).
    """

    kind: Literal["none", "theta", "pi", "yarn"] = "none"
    theta: float = Field(default=10_000.0, gt=1, allow_inf_nan=False)
    factor: float | None = Field(default=None, ge=1, description="new by original context length; computed if left out")
    original_context_tokens: int | None = Field(default=None, ge=1, description="the first phase's context if left out")


class LearningRateSettings(_Model):
    """The learning rate of a phase: from ``start`` to ``end`` over its tokens, after ``warmup_tokens`` from zero.

    ``one_minus_sqrt`` is the cooldown of arXiv 2405.18392. Without ``start``, the rate continues from where the
    previous phase ended; without ``end``, it ends at ``start``.
    """

    shape: Literal["constant", "linear", "cosine", "one_minus_sqrt"] = "constant"
    start: Rate | None = None
    end: Rate | None = None
    warmup_tokens: int = Field(default=0, ge=0)

    @pydantic.model_validator(mode="after")
    def _constant_has_one_value(self) -> LearningRateSettings:
        if self.shape == "constant" and self.end is not None and self.end != self.start:
            raise ValueError(f"a constant rate cannot end at {self.end}: leave end out or choose another shape")
        return self


class PhaseSettings(_Model):
    """One phase of the schedule as written in a recipe. Exactly one of ``tokens`` and ``share`` is given."""

    name: str = Field(min_length=1)
    tokens: int | None = Field(default=None, gt=0)
    share: float | None = Field(default=None, gt=0, le=1, description="of the schedule's total")
    # Relative weights: a constant, or [start, end] of a line. A group's weight is divided by its members' tokens.
    weights: Literal["natural"] | dict[str, Weight | tuple[Weight, Weight]] = "natural"
    context_tokens: int = Field(gt=1)
    batch_tokens: int = Field(gt=1)
    rope: RopeSettings = RopeSettings()
    learning_rate: LearningRateSettings

    @pydantic.model_validator(mode="after")
    def _one_length(self) -> PhaseSettings:
        if (self.tokens is None) == (self.share is None):
            raise ValueError(f"phase {self.name!r} needs either tokens or share")
        if self.batch_tokens % self.context_tokens:
            near = max(1, round(self.batch_tokens / self.context_tokens)) * self.context_tokens
            raise ValueError(
                f"batch_tokens {self.batch_tokens} of phase {self.name!r} is not a multiple of its context_tokens "
                f"{self.context_tokens}; the nearest is {near}"
            )
        return self


class ScheduleSettings(_Model):
    """The schedule as written in a recipe.

    Either every phase has ``tokens``, or every phase has a ``share`` of a total. The total is one of ``tokens``,
    ``epochs`` (a multiple of the run's training tokens) and ``exact_epochs``, which serves every document exactly that
    many times over all phases, with natural weights throughout.
    """

    phases: tuple[PhaseSettings, ...] = Field(min_length=1)
    tokens: int | None = Field(default=None, gt=0)
    epochs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    exact_epochs: int | None = Field(default=None, ge=1)
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    max_epochs: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    default_max_epochs: float = Field(default=DEFAULT_MAX_EPOCHS, gt=0)

    @pydantic.model_validator(mode="after")
    def _one_total(self) -> ScheduleSettings:
        shares = [phase.share for phase in self.phases if phase.share is not None]
        totals = [name for name in ("tokens", "epochs", "exact_epochs") if getattr(self, name) is not None]
        if 0 < len(shares) < len(self.phases):
            raise ValueError("either every phase has tokens or every phase has a share")
        if shares and len(totals) != 1:
            raise ValueError("phases with a share need one total: tokens, epochs or exact_epochs")
        if shares and abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"the phases' shares add up to {sum(shares):g}, not 1")
        if not shares and totals:
            raise ValueError(f"the phases have tokens, so {totals[0]} would state the total twice: leave it out")
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            raise ValueError(f"two phases are both called {next(name for name in names if names.count(name) > 1)!r}")
        if self.exact_epochs and any(phase.weights != "natural" for phase in self.phases):
            raise ValueError("exact_epochs serves every document equally often, so every phase's weights are natural")
        if self.phases[0].learning_rate.start is None:
            raise ValueError("the first phase's learning rate needs a start")
        return self
