"""The schedule: what to train on and how, as a pure function of the tokens consumed.

``ScheduleSettings`` is what a recipe says; ``resolve`` turns it, with the tokens that a run has per domain, into a
``Schedule`` of concrete stages. ``Schedule.at`` returns everything that depends on progress, so there is scheduler
state to lose. "Tokens" are row slots, padding included: steps and tokens are arithmetic.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pydantic
from pydantic import Field

from shards.schedule.settings import LearningRateSettings, RopeSettings, ScheduleSettings, ScheduleStage

__all__ = [
    "Intervention",
    "LearningRate",
    "LearningRateSettings",
    "Point",
    "Rope",
    "RopeSettings",
    "Schedule",
    "ScheduleSettings",
    "ScheduleStage",
    "Stage",
]


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Rope(_Model):
    """How positions are encoded, with every number settled. ``factor`` is 1 for ``none`` and ``theta``."""

    kind: Literal["none", "theta", "pi", "yarn"]
    theta: float
    factor: float
    original_context_tokens: int


class LearningRate(_Model):
    """The learning rate of a stage, with every number settled."""

    shape: Literal["constant", "linear", "cosine", "one_minus_sqrt"]
    start: float
    end: float
    warmup_tokens: int

    def at(self, tokens: int, stage_tokens: int, batch_tokens: int) -> float:
        """Return the rate of the step that begins ``tokens`` into the stage; exactly ``end`` at the stage's end.

        Warm-up counts the step itself, so that the first step of a run already learns.
        """
        if tokens < self.warmup_tokens:
            return self.start * min(1.0, (tokens + batch_tokens) / self.warmup_tokens)
        left = stage_tokens - self.warmup_tokens
        progress = min(1.0, (tokens - self.warmup_tokens) / left) if left > 0 else 1.0
        match self.shape:
            case "constant":
                return self.start
            case "linear":
                kept = 1.0 - progress
            case "cosine":
                kept = 0.5 * (1.0 + math.cos(math.pi * progress))
            case "one_minus_sqrt":
                kept = 1.0 - math.sqrt(progress)
        return self.end + (self.start - self.end) * kept


class Stage(_Model):
    """One stage of a resolved schedule. Weights are in the order of ``Schedule.domains`` and add up to 1."""

    name: str
    tokens: int
    context_tokens: int
    batch_tokens: int
    weights_start: tuple[float, ...]
    weights_end: tuple[float, ...]
    rope: Rope
    learning_rate: LearningRate

    @property
    def steps(self) -> int:
        """Steps of the stage."""
        return self.tokens // self.batch_tokens

    @property
    def rows(self) -> int:
        """Rows of ``context_tokens`` in a step."""
        return self.batch_tokens // self.context_tokens


class Intervention(_Model):
    """What a run decided for itself, kept in its checkpoint and applied on top of the schedule, in order.

    ``skip_batch`` consumes the tokens of the steps without training on them; ``scale_learning_rate`` multiplies the
    rate. Steps are global, ``until_step`` excluded.
    """

    kind: Literal["skip_batch", "scale_learning_rate"]
    from_step: int = Field(ge=0)
    until_step: int
    factor: float = Field(default=1.0, ge=0)
    reason: str = ""


@dataclass(frozen=True)
class Point:
    """All that the schedule says at one moment: before a step, or at the very end.

    Attributes:
        tokens: row slots consumed before it.
        stage: index of the stage; ``name`` its name.
        step: steps done before it, over all stages.
        rows: rows of ``context_tokens`` in the step; ``batch_tokens`` is their product.
        learning_rate: of the step, interventions applied.
        weights: share of the next tokens per domain, adding up to 1.
        skipped: true if the batch is to be consumed without training on it.
    """

    tokens: int
    stage: int
    name: str
    step: int
    context_tokens: int
    batch_tokens: int
    rows: int
    learning_rate: float
    weights: dict[str, float]
    rope: Rope
    skipped: bool = False


class Schedule(_Model):
    """A resolved schedule: concrete stages over the domains of a run.

    ``exact_epochs`` says that every document is served exactly so often; then ``fitted`` says that the last stage's
    tokens are the rows that this takes, counted, and not the tokens, which are fewer (``trainer.stream.fit``).
    """

    version: Literal[1] = 1
    domains: tuple[str, ...]
    tokens_per_domain: tuple[int, ...]
    stages: tuple[Stage, ...]
    exact_epochs: int | None = None
    fitted: bool = False

    @property
    def tokens(self) -> int:
        """Row slots of the whole schedule."""
        return sum(stage.tokens for stage in self.stages)

    @property
    def steps(self) -> int:
        """Steps of the whole schedule."""
        return sum(stage.steps for stage in self.stages)

    @property
    def epochs(self) -> dict[str, float]:
        """How often each domain is read, as tokens asked of it by tokens it has."""
        asked = self.ideal_tokens(self.tokens)
        return {
            name: part / have if have else 0.0
            for name, part, have in zip(self.domains, asked, self.tokens_per_domain, strict=True)
        }

    def at(self, tokens: int, interventions: Sequence[Intervention] = ()) -> Point:
        """Return all that holds after ``tokens`` row slots: for the step that begins there, or contains them.

        At ``self.tokens``, the end, it gives the last stage's final values.

        Raises:
            ValueError: if tokens is not within 0 and ``self.tokens``.
        """
        index, begin, first_step = self._stage_of(tokens)
        stage = self.stages[index]
        step = first_step + (tokens - begin) // stage.batch_tokens
        rate = stage.learning_rate.at(tokens - begin, stage.tokens, stage.batch_tokens)
        skipped = False
        for change in interventions:
            if change.from_step <= step < change.until_step:
                skipped |= change.kind == "skip_batch"
                rate *= change.factor if change.kind == "scale_learning_rate" else 1.0
        along = (tokens - begin) / stage.tokens
        pairs = zip(self.domains, stage.weights_start, stage.weights_end, strict=True)
        return Point(
            tokens=tokens,
            stage=index,
            name=stage.name,
            step=step,
            context_tokens=stage.context_tokens,
            batch_tokens=stage.batch_tokens,
            rows=stage.rows,
            learning_rate=rate,
            weights={name: start + (end - start) * along for name, start, end in pairs},
            rope=stage.rope,
            skipped=skipped,
        )

    def at_step(self, step: int, interventions: Sequence[Intervention] = ()) -> Point:
        """Return all that holds at the beginning of a step, counted over all stages."""
        return self.at(self.tokens_before(step), interventions)

    def tokens_before(self, step: int) -> int:
        """Return the row slots consumed before a step.

        Raises:
            ValueError: if step is not within 0 and ``self.steps``.
        """
        left = step
        tokens = 0
        for stage in self.stages:
            if 0 <= left <= stage.steps:
                return tokens + left * stage.batch_tokens
            left -= stage.steps
            tokens += stage.tokens
        raise ValueError(f"step {step} is not within 0 and {self.steps}")

    def ideal_tokens(self, tokens: int) -> tuple[float, ...]:
        """Return the tokens of each domain that ``tokens`` row slots ought to hold: the integral of the weights."""
        totals = [0.0] * len(self.domains)
        left = tokens
        for stage in self.stages:
            here = min(left, stage.tokens)
            for index, (start, end) in enumerate(zip(stage.weights_start, stage.weights_end, strict=True)):
                totals[index] += here * (start + (end - start) * (here / (2 * stage.tokens)))
            left -= here
        return tuple(totals)

    def with_last_stage(self, steps: int) -> Schedule:
        """Return this schedule with another number of steps in its last stage, marked as fitted."""
        last = self.stages[-1]
        stages = (*self.stages[:-1], last.model_copy(update={"tokens": steps * last.batch_tokens}))
        return self.model_copy(update={"stages": stages, "fitted": True})

    def to_json(self) -> str:
        """Return the schedule's text: the same schedule gives the same bytes, and ``from_json`` the same schedule."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Schedule:
        """Read a schedule that ``to_json`` gave."""
        return cls.model_validate_json(text)

    @property
    def digest(self) -> str:
        """SHA-256 of the schedule, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def _stage_of(self, tokens: int) -> tuple[int, int, int]:
        """Return (stage, row slots before it, steps before it) of a moment."""
        if not 0 <= tokens <= self.tokens:
            raise ValueError(f"{tokens} tokens are not within 0 and {self.tokens}")
        begin = first_step = 0
        for index, stage in enumerate(self.stages):
            if tokens < begin + stage.tokens or index == len(self.stages) - 1:
                return index, begin, first_step
            begin += stage.tokens
            first_step += stage.steps
        raise AssertionError("a schedule has at least one stage")
