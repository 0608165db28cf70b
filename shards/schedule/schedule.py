"""The schedule: what to train on and how, as a pure function of the tokens consumed.

``ScheduleSettings`` is what a recipe says; ``resolve`` turns it, given a run's tokens per domain, into a ``Schedule``
of concrete phases. ``Schedule.at`` returns everything that depends on progress, so there is no scheduler state to lose.
"Tokens" are row slots, padding included, so the step follows from the tokens by arithmetic.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pydantic
from pydantic import Field

from shards.errors import UserError

FORMAT: Final = 2
"""Format of ``schedule.json``, kept in it as ``version``."""

_REMEDY: Final = "Run the recipe again"


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Rope(_Model):
    """How positions are encoded, with every value resolved. ``factor`` is 1 for ``none`` and ``theta``."""

    kind: Literal["none", "theta", "pi", "yarn"]
    theta: float
    factor: float
    original_context_tokens: int


class LearningRate(_Model):
    """The learning rate of a phase, with every value resolved."""

    shape: Literal["constant", "linear", "cosine", "one_minus_sqrt"]
    start: float
    end: float
    warmup_tokens: int

    def at(self, tokens: int, phase_tokens: int, batch_tokens: int) -> float:
        """Return the rate of the step that begins ``tokens`` into the phase; exactly ``end`` at the phase's end.

        Warm-up counts the step itself, so that the first step of a run has a rate above zero.
        """
        if tokens < self.warmup_tokens:
            return self.start * min(1.0, (tokens + batch_tokens) / self.warmup_tokens)
        after_warmup = phase_tokens - self.warmup_tokens
        progress = min(1.0, (tokens - self.warmup_tokens) / after_warmup) if after_warmup > 0 else 1.0
        match self.shape:
            case "constant":
                return self.start
            case "linear":
                remaining = 1.0 - progress
            case "cosine":
                remaining = 0.5 * (1.0 + math.cos(math.pi * progress))
            case "one_minus_sqrt":
                remaining = 1.0 - math.sqrt(progress)
        return self.end + (self.start - self.end) * remaining


class Phase(_Model):
    """One phase of a resolved schedule. Weights are in the order of ``Schedule.domains`` and add up to 1."""

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
        """Number of steps."""
        return self.tokens // self.batch_tokens

    @property
    def rows(self) -> int:
        """Rows of ``context_tokens`` in each step."""
        return self.batch_tokens // self.context_tokens


class Intervention(_Model):
    """A deviation that a run decided on: kept in its checkpoint, and applied on top of the schedule in order.

    ``skip_batch`` consumes the tokens of the steps without training on them; ``scale_learning_rate`` multiplies the
    rate. Steps count over all phases; ``until_step`` is excluded.
    """

    kind: Literal["skip_batch", "scale_learning_rate"]
    from_step: int = Field(ge=0)
    until_step: int
    factor: float = Field(default=1.0, ge=0)
    reason: str = ""


@dataclass(frozen=True)
class Point:
    """Everything that the schedule says at one point: before a step, or at the very end.

    Attributes:
        tokens: row slots consumed before it.
        phase: index of the phase; ``name`` is its name.
        step: steps done before it, over all phases.
        rows: rows of ``context_tokens`` in the step; ``batch_tokens`` is the product of the two.
        learning_rate: of the step, with interventions applied.
        weights: share of the next tokens per domain; they add up to 1.
        skipped: True if the batch is to be consumed without training on it.
    """

    tokens: int
    phase: int
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
    """A resolved schedule: concrete phases over the domains of a run.

    With ``exact_epochs`` every document is served exactly that often. Rows hold padding, so this takes more row slots
    than there are tokens: ``fitted`` is True once ``trainer.stream.fit`` has counted those of the last phase.
    """

    version: Literal[2] = FORMAT
    domains: tuple[str, ...]
    tokens_per_domain: tuple[int, ...]
    phases: tuple[Phase, ...]
    exact_epochs: int | None = None
    fitted: bool = False

    @property
    def tokens(self) -> int:
        """Row slots of the whole schedule."""
        return sum(phase.tokens for phase in self.phases)

    @property
    def steps(self) -> int:
        """Steps of the whole schedule."""
        return sum(phase.steps for phase in self.phases)

    def at(self, tokens: int, interventions: Sequence[Intervention] = ()) -> Point:
        """Return everything that applies after ``tokens`` row slots: to the step that begins there or contains them.

        At ``self.tokens``, the end, these are the last phase's final values.

        Raises:
            ValueError: if tokens is not between 0 and ``self.tokens``.
        """
        index, begin, first_step = self._phase_of(tokens)
        phase = self.phases[index]
        step = first_step + (tokens - begin) // phase.batch_tokens
        rate = phase.learning_rate.at(tokens - begin, phase.tokens, phase.batch_tokens)
        skipped = False
        for change in interventions:
            if change.from_step <= step < change.until_step:
                skipped |= change.kind == "skip_batch"
                rate *= change.factor if change.kind == "scale_learning_rate" else 1.0
        along = (tokens - begin) / phase.tokens
        pairs = zip(self.domains, phase.weights_start, phase.weights_end, strict=True)
        return Point(
            tokens=tokens,
            phase=index,
            name=phase.name,
            step=step,
            context_tokens=phase.context_tokens,
            batch_tokens=phase.batch_tokens,
            rows=phase.rows,
            learning_rate=rate,
            weights={name: start + (end - start) * along for name, start, end in pairs},
            rope=phase.rope,
            skipped=skipped,
        )

    def at_step(self, step: int, interventions: Sequence[Intervention] = ()) -> Point:
        """Return everything that applies at the beginning of a step, counted over all phases."""
        return self.at(self.tokens_before(step), interventions)

    def tokens_before(self, step: int) -> int:
        """Return the row slots consumed before a step.

        Raises:
            ValueError: if step is not between 0 and ``self.steps``.
        """
        left = step
        tokens = 0
        for phase in self.phases:
            if 0 <= left <= phase.steps:
                return tokens + left * phase.batch_tokens
            left -= phase.steps
            tokens += phase.tokens
        raise ValueError(f"step {step} is not between 0 and {self.steps}")

    def ideal_tokens(self, tokens: int) -> tuple[float, ...]:
        """Return how many of the first ``tokens`` row slots each domain is due: the integral of its weight."""
        totals = [0.0] * len(self.domains)
        left = tokens
        for phase in self.phases:
            here = min(left, phase.tokens)
            for index, (start, end) in enumerate(zip(phase.weights_start, phase.weights_end, strict=True)):
                totals[index] += here * (start + (end - start) * (here / (2 * phase.tokens)))
            left -= here
        return tuple(totals)

    def with_last_phase(self, steps: int) -> Schedule:
        """Return this schedule with ``steps`` steps in its last phase, marked as fitted."""
        last = self.phases[-1]
        phases = (*self.phases[:-1], last.model_copy(update={"tokens": steps * last.batch_tokens}))
        return self.model_copy(update={"phases": phases, "fitted": True})

    def to_json(self) -> str:
        """Return the schedule as JSON text, the same bytes for the same schedule; ``from_json`` reads it back."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, place: str = "") -> Schedule:
        """Read a schedule that ``to_json`` wrote; ``place`` is where it was found, for messages.

        Raises:
            UserError: if it has another format, or is not a schedule.
        """
        try:
            value = json.loads(text)
        except ValueError as error:
            raise UserError(f"the schedule is not JSON: {error}", place=place, remedy=_REMEDY) from None
        found = value.get("version") if isinstance(value, dict) else None
        if isinstance(found, int) and found != FORMAT:
            raise UserError(
                f"the schedule has format {found}, and this version of headrace reads format {FORMAT}",
                place=place,
                remedy=_REMEDY,
            )
        try:
            return cls.model_validate_json(text)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            what = f"{where}: {first['msg']}" if where else first["msg"]
            raise UserError(f"this is not a schedule: {what}", place=place, remedy=_REMEDY) from None

    @property
    def digest(self) -> str:
        """SHA-256 of the schedule, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def _phase_of(self, tokens: int) -> tuple[int, int, int]:
        """Return (phase, row slots before it, steps before it) of the point after ``tokens`` row slots."""
        if not 0 <= tokens <= self.tokens:
            raise ValueError(f"{tokens} tokens is not between 0 and {self.tokens}")
        begin = first_step = 0
        for index, phase in enumerate(self.phases):
            if tokens < begin + phase.tokens or index == len(self.phases) - 1:
                return index, begin, first_step
            begin += phase.tokens
            first_step += phase.steps
        raise AssertionError("a schedule has at least one phase")
