"""The schedule: what to train on and how, as a pure function of the tokens consumed.

``ScheduleSettings`` is what a recipe says; ``resolve`` turns it, given a run's tokens per domain, into a ``Schedule``
of concrete phases. ``Schedule.at`` returns everything that depends on progress, so there is no scheduler state to lose.
"Tokens" are row slots, padding included, so the step follows from the tokens by arithmetic.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pydantic
from pydantic import Field

from shards.errors import UserError
from shards.schedule.phase import Phase
from shards.schedule.phase import Rope as Rope

FORMAT: Final = 3
"""Format of ``schedule.json``, kept in it as ``version``."""

_REMEDY: Final = "Run the recipe again"


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


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


class Past(_Model):
    """What a branch begins after: the first ``steps`` steps of another schedule."""

    schedule: Schedule
    steps: int = Field(ge=0)


class Schedule(_Model):
    """A resolved schedule: concrete phases over the domains of a run.

    A branch has a ``past``: steps that another schedule has served, and whose plan, rates and weights stay what they
    were. Its phases are those after it; steps and tokens count from the beginning of the past.

    With ``exact_epochs`` every document is served exactly that often. Rows hold padding, so this takes more row slots
    than there are tokens: ``fitted`` is True once ``trainer.stream.fit`` has counted those of the last phase.
    """

    version: Literal[3] = FORMAT
    domains: tuple[str, ...]
    tokens_per_domain: tuple[int, ...]
    phases: tuple[Phase, ...]
    exact_epochs: int | None = None
    fitted: bool = False
    past: Past | None = None

    @property
    def past_tokens(self) -> int:
        """Row slots that the past has served."""
        return 0 if self.past is None else self.past.schedule.tokens_before(self.past.steps)

    @property
    def past_steps(self) -> int:
        """Steps that the past has served."""
        return 0 if self.past is None else self.past.steps

    @property
    def tokens(self) -> int:
        """Row slots of the whole schedule."""
        return self.past_tokens + sum(phase.tokens for phase in self.phases)

    @property
    def steps(self) -> int:
        """Steps of the whole schedule."""
        return self.past_steps + sum(phase.steps for phase in self.phases)

    def serving(self, step: int) -> Schedule:
        """Return the schedule that serves a step: this one, or the one of the past that did."""
        if self.past is None or step >= self.past.steps:
            return self
        return self.past.schedule.serving(step)

    def served_of_phase(self, step: int) -> int:
        """Return the row slots that the phase before ``step`` has served by then, in all branches; 0 at step 0."""
        if not step:
            return 0
        serving = self.serving(step - 1)
        index, begin, _ = serving._phase_of(self.tokens_before(step - 1))
        return serving.phases[index].done_tokens + self.tokens_before(step) - begin

    def continues(self, digest: str, step: int) -> bool:
        """Return whether what the schedule with this digest served before ``step`` is also what this one serves."""
        if digest == self.digest:
            return True
        return self.past is not None and step <= self.past.steps and self.past.schedule.continues(digest, step)

    def at(self, tokens: int, interventions: Sequence[Intervention] = ()) -> Point:
        """Return everything that applies after ``tokens`` row slots: to the step that begins there or contains them.

        At ``self.tokens``, the end, these are the last phase's final values.

        Raises:
            ValueError: if tokens is not between 0 and ``self.tokens``.
        """
        if self.past is not None and tokens < self.past_tokens:
            return self.past.schedule.at(tokens, interventions)
        index, begin, first_step = self._phase_of(tokens)
        phase = self.phases[index]
        step = first_step + (tokens - begin) // phase.batch_tokens
        into, whole = phase.done_tokens + tokens - begin, phase.done_tokens + phase.tokens
        rate = phase.learning_rate.at(into, whole, phase.batch_tokens)
        skipped = False
        for change in interventions:
            if change.from_step <= step < change.until_step:
                skipped |= change.kind == "skip_batch"
                rate *= change.factor if change.kind == "scale_learning_rate" else 1.0
        return Point(
            tokens=tokens,
            phase=self._past_phases + index,
            name=phase.name,
            step=step,
            context_tokens=phase.context_tokens,
            batch_tokens=phase.batch_tokens,
            rows=phase.rows,
            learning_rate=rate,
            weights={name: phase.weight(domain, tokens - begin) for domain, name in enumerate(self.domains)},
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
        if self.past is not None and 0 <= step <= self.past.steps:
            return self.past.schedule.tokens_before(step)
        left = step - self.past_steps
        tokens = self.past_tokens
        for phase in self.phases:
            if 0 <= left <= phase.steps:
                return tokens + left * phase.batch_tokens
            left -= phase.steps
            tokens += phase.tokens
        raise ValueError(f"step {step} is not between 0 and {self.steps}")

    def ideal_tokens(self, tokens: int) -> tuple[float, ...]:
        """Return how many of the first ``tokens`` row slots each domain is due: the integral of its weight."""
        before = self.past_tokens
        totals = [0.0] * len(self.domains)
        if self.past is not None:
            totals = list(self.past.schedule.ideal_tokens(min(tokens, before)))
        left = max(0, tokens - before)
        for phase in self.phases:
            here = min(left, phase.tokens)
            totals = [total + phase.owed(domain, here) for domain, total in enumerate(totals)]
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

    @property
    def _past_phases(self) -> int:
        """How many phases the past had begun."""
        return 0 if not self.past_steps else self.past.schedule.at_step(self.past_steps - 1).phase + 1  # type: ignore[union-attr]

    def _phase_of(self, tokens: int) -> tuple[int, int, int]:
        """Return (phase, row slots before it, steps before it) of the point after ``tokens`` row slots."""
        if not 0 <= tokens <= self.tokens:
            raise ValueError(f"{tokens} tokens is not between 0 and {self.tokens}")
        begin, first_step = self.past_tokens, self.past_steps
        for index, phase in enumerate(self.phases):
            if tokens < begin + phase.tokens or index == len(self.phases) - 1:
                return index, begin, first_step
            begin += phase.tokens
            first_step += phase.steps
        raise AssertionError("a schedule has at least one phase")


Past.model_rebuild()
