"""The schedule as written in a recipe: strict settings, in which nothing depends on a run's data yet."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import pydantic
from pydantic import Field

DEFAULT_MAX_EPOCHS: Final = 4.0
"""Up to about four epochs, repeated tokens are worth nearly as much as new ones (arXiv 2305.16264)."""

DEFAULT_COSINE_SHARE: Final = 0.1
"""Share of its start at which a cosine ends: as in Chinchilla's training (arXiv 2203.15556)."""

DEFAULT_DECAY_SHARE: Final = 0.2

DecayShape = Literal["linear", "cosine", "one_minus_sqrt"]

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

    ``wsd`` stays at ``start`` and goes to ``end``, zero by default, over the last ``decay_share`` of the phase, in the
    shape ``decay_shape`` (warm-up, stable, decay: arXiv 2404.06395). ``one_minus_sqrt`` is the cooldown of arXiv
    2405.18392, which also finds a fifth of the steps to be enough for it. Without ``start``, the rate continues from
    where the previous phase ended. Without ``end``, a cosine ends at a tenth of ``start`` (arXiv 2203.15556), and any
    other shape at ``start``. ``end_share`` says the end as a share of ``start``.
    """

    shape: Literal["constant", "linear", "cosine", "one_minus_sqrt", "wsd"] = "constant"
    start: Rate | None = None
    end: Rate | None = None
    end_share: Rate | None = None
    warmup_tokens: int = Field(default=0, ge=0)
    decay_share: float | None = Field(default=None, gt=0, le=1, description="of the phase; for wsd, 0.2 by default")
    decay_shape: DecayShape | None = Field(default=None, description="for wsd, one_minus_sqrt by default")

    @pydantic.model_validator(mode="after")
    def _keys_fit_the_shape(self) -> LearningRateSettings:
        if self.end is not None and self.end_share is not None:
            raise ValueError("end and end_share say the same twice: leave one out")
        if self.shape == "constant" and self.end is not None and self.end != self.start:
            raise ValueError(f"a constant rate cannot end at {self.end}: leave end out or choose another shape")
        if self.shape == "constant" and self.end_share not in (None, 1.0):
            raise ValueError(f"a constant rate cannot end at {self.end_share} of itself: choose another shape")
        if self.shape != "wsd" and (self.decay_share is not None or self.decay_shape is not None):
            raise ValueError(f'decay_share and decay_shape are for shape = "wsd", not for {self.shape!r}')
        return self

    def end_of(self, start: float) -> float:
        """Return the rate that a phase which starts at ``start`` ends with."""
        if self.end is not None:
            return self.end
        if self.end_share is not None:
            return self.end_share * start
        return {"cosine": DEFAULT_COSINE_SHARE * start, "wsd": 0.0}.get(self.shape, start)


class PhaseSettings(_Model):
    """One phase of the schedule as written in a recipe. Exactly one of ``tokens`` and ``share`` is given."""

    name: str = Field(min_length=1)
    tokens: int | None = Field(default=None, gt=0)
    share: float | None = Field(default=None, gt=0, le=1, description="of the schedule's total")
    # Relative weights: a constant, or [start, end] of a line. A group's weight is divided by its members' tokens.
    weights: Literal["natural"] | dict[str, Weight | tuple[Weight, Weight]] = "natural"
    alpha: float = Field(default=1.0, ge=0, le=1, description="natural weights follow sizes to this power")
    budgets: dict[str, Annotated[int, Field(gt=0)]] = Field(
        default_factory=dict, description="tokens of the phase that domains or groups get; weights share the rest"
    )
    context_tokens: int = Field(gt=1)
    batch_tokens: int = Field(gt=1)
    rope: RopeSettings = RopeSettings()
    learning_rate: LearningRateSettings

    @pydantic.model_validator(mode="after")
    def _one_length(self) -> PhaseSettings:
        if (self.tokens is None) == (self.share is None):
            raise ValueError(f"phase {self.name!r} needs either tokens or share")
        if self.alpha != 1 and self.weights != "natural":
            raise ValueError(f"alpha of phase {self.name!r} has no effect on weights that are given: leave it out")
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
    rescale: Literal["none", "linear", "sqrt"] = Field(
        default="none", description="rates are given for the first phase's batch, and grow with the batch or its root"
    )
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
        natural = [phase.weights == "natural" and phase.alpha == 1 and not phase.budgets for phase in self.phases]
        if self.exact_epochs and not all(natural):
            raise ValueError("exact_epochs serves every document equally often, so every phase's weights are natural")
        if self.phases[0].learning_rate.start is None:
            raise ValueError("the first phase's learning rate needs a start")
        return self
