"""The training stream: the batches of a schedule, in an order that is a pure function of shards, schedule and seed.

Cursors are global: the stream plans whole steps from lengths, and each rank reads the tokens of its own rows. So what
is served does not depend on the number of ranks, and a run can resume from the same state on any number of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pydantic

from shards.errors import IncompleteError, UserError
from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from shards.sealed import digest_of, read_sealed, write_sealed
from shards.store import Store
from trainer.batch import Batch, Placed, StepPlan, assemble, micro_batches
from trainer.cursor import Cursor, CursorState, Group
from trainer.kept_states import KeptStates
from trainer.mixing import Mixer
from trainer.order import DEFAULT_WINDOW_SHARDS

_VERSION: Final = 2
"""Raised when the same shards, schedule and seed give other batches."""


class _StreamState(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    version: Literal[2] = _VERSION
    seed: int
    window_shards: int
    schedule: str
    shards: str
    step: int
    # Per domain: served, epoch, start, count, packings; a list without names, to keep the state under 1 kB.
    domains: dict[str, tuple[int, int, int, int, list[tuple[int, int]]]]


class Stream:
    """Serves the steps of a schedule from shards.

    Args:
        shards: the shards of a run; only their ``train`` subset is served.
        schedule: resolved on these shards. One with ``exact_epochs`` must be fitted first: see ``fit``.
        seed: seed of the order of documents and rows.
        window_shards: shards whose documents are permuted together. See ``DocumentOrder``.
        state: result of ``state()``, to continue from there; only one group per domain is rebuilt.
        keep: a file that keeps the state of every hundredth step for ``seek``; in memory alone by default.
        writes: whether this process writes to ``keep``; one alone may.

    Raises:
        UserError: if the schedule was resolved on other shards or is not fitted, or the state is from another run.
    """

    def __init__(
        self,
        shards: ShardSet,
        schedule: Schedule,
        seed: int,
        *,
        window_shards: int | None = None,
        state: Mapping[str, Any] | None = None,
        keep: Path | None = None,
        writes: bool = True,
    ) -> None:
        check_resolved_on(schedule, shards)
        if schedule.exact_epochs and not schedule.fitted:
            raise UserError(
                "the schedule serves exact epochs, but its last phase has not been counted yet",
                place="schedule.exact_epochs",
                remedy="Pass it through trainer.stream.fit",
            )
        self.shards, self.schedule, self.seed, self.window_shards = shards, schedule, seed, window_shards
        self._identity: dict[str, Any] = {
            "version": _VERSION,
            "seed": seed,
            "window_shards": window_shards or DEFAULT_WINDOW_SHARDS,
            "schedule": schedule.digest,
            "shards": shards.catalog.digest,
        }
        self._kept = KeptStates(self._identity, keep, writes=writes)
        self._planned: tuple[int, StepPlan] | None = None
        if state is None:
            self._move_to(0, {})
        else:
            self._resume(state)

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides the batches: a state of a stream with another identity is refused."""
        return dict(self._identity)

    @property
    def step(self) -> int:
        """The next step, counted over all phases."""
        return self._step

    def state(self) -> dict[str, Any]:
        """Return the state before step ``step``, as plain values for JSON: a few hundred bytes."""
        domains = {}
        for name, cursor, served in zip(self.schedule.domains, self._cursors, self._mixer.served, strict=True):
            now = cursor.state
            domains[name] = (served, now.epoch, now.start, now.count, now.packings)
        state = _StreamState.model_validate({**self._identity, "step": self._step, "domains": domains})
        return state.model_dump(mode="json")

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to where a stream was when it returned this state.

        Raises:
            UserError: if the state is of another stream.
        """
        self._resume(state)

    def seek(self, step: int) -> None:
        """Go to a step, by planning what lies between it and the last state that is known before it.

        Takes time proportional to the rows in between, though no token is read. States are known of where the stream
        is, and of every hundredth step that it, or an earlier one with the same ``keep``, has passed.

        Raises:
            ValueError: if the schedule does not have this step or end before it.
        """
        if not 0 <= step <= self.schedule.steps:
            raise ValueError(f"step {step} is not between 0 and {self.schedule.steps}")
        kept = self._kept.before(step)
        if kept is not None and (step < self._step or kept["step"] > self._step):
            self._resume(kept)
        while self._step < step:
            self._next()

    def plan(self, step: int) -> StepPlan:
        """Return the plan of a step, with the rows of all ranks, and move to the step after it.

        Raises:
            ValueError: if the schedule does not have this step.
        """
        if self._planned is None or self._planned[0] != step:
            if not 0 <= step < self.schedule.steps:
                raise ValueError(f"the schedule has {self.schedule.steps} steps, so no step {step}")
            self.seek(step)
            self._planned = step, self._next()
        return self._planned[1]

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Read consecutive rows of a step, by default all of them."""
        return assemble(self.shards, self.plan(step).part(rows))

    def rows_for(self, step: int, micro_batch_rows: int, rank: int, ranks: int) -> list[slice]:
        """Plan a step and return the micro-batches of a rank in it; see ``trainer.batch.micro_batches``.

        The stream moves on even if the rank has none.
        """
        return micro_batches(self.plan(step).rows, micro_batch_rows, rank, ranks)

    def _resume(self, state: Mapping[str, Any]) -> None:
        try:
            parsed = _StreamState.model_validate(state)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(
                f"this is not the state of a stream: {where}: {first['msg']}",
                place="checkpoint",
                remedy="Remove this checkpoint, to resume from an older one or to start again",
            ) from None
        for name, here in self._identity.items():
            there = getattr(parsed, name)
            if there != here and not (name == "schedule" and self.schedule.continues(there, parsed.step)):
                raise UserError(
                    f"the checkpoint was written with {name} {there}, but this run has {here}",
                    place="checkpoint",
                    remedy="Resume with what it was written with, or start again",
                )
        self._move_to(parsed.step, parsed.domains)

    def _move_to(self, step: int, domains: Mapping[str, tuple[int, int, int, int, list[tuple[int, int]]]]) -> None:
        self._step = step
        self._planned = None
        self._cursors = []
        served = []
        for name in self.schedule.domains:
            row_slots, epoch, start, count, packings = domains.get(name, (0, 0, 0, 0, []))
            served.append(row_slots)
            self._cursors.append(
                Cursor(
                    self.shards,
                    name,
                    self.seed,
                    max_epochs=self.schedule.exact_epochs,
                    window_shards=self.window_shards,
                    state=CursorState(epoch, start, count, list(packings)),
                )
            )
        self._serving = self.schedule.serving(step)
        self._mixer = Mixer(self._serving, served)

    def _next(self) -> StepPlan:
        """Plan the next step."""
        if self._kept.is_due(self._step):
            self._kept.offer(self._step, self.state())
        if (serving := self.schedule.serving(self._step)) is not self._serving:
            # Here a branch begins: from now on its weights are due, and what was served before counts.
            self._serving, self._mixer = serving, Mixer(serving, self._mixer.served)
        point = self.schedule.at_step(self._step)
        context = point.context_tokens
        domain = np.full(point.rows, -1, np.int64)
        # Consecutive rows of one group, by domain: (group, first row in it, rows of the step).
        runs: list[list[tuple[Group, int, list[int]]]] = [[] for _ in self._cursors]
        for row in range(point.rows):
            tokens = point.tokens + row * context
            while (chosen := self._mixer.choose(tokens, context)) >= 0:
                taken = self._cursors[chosen].take(context)
                if taken is not None:
                    break
                self._mixer.exhaust(chosen)
            else:
                break
            self._mixer.serve(chosen, context)
            domain[row] = chosen
            run = runs[chosen]
            if not run or run[-1][0] is not taken[0]:
                run.append((taken[0], taken[1], []))
            run[-1][2].append(row)
        self._step += 1
        placed = [
            Placed.of_group(group, first, np.array(rows), index)
            for index, run in enumerate(runs)
            for group, first, rows in run
        ]
        return StepPlan(context, self.schedule.domains, domain, Placed.joined(placed))

    @property
    def done(self) -> bool:
        """True if every domain has served its exact epochs; never True without ``exact_epochs``."""
        return all(cursor.done for cursor in self._cursors)


def fit(
    shards: ShardSet, schedule: Schedule, seed: int, *, window_shards: int | None = None, keep: Path | None = None
) -> Schedule:
    """Return a schedule with ``exact_epochs`` at its true length, found by planning it; any other schedule unchanged.

    Rows hold padding, so an epoch takes more row slots than it has tokens; how many depends on where the context
    changes. All phases except the last keep their tokens; the last takes the remaining rows, so that its learning rate
    ends where the documents do. Only the last step may have rows that are all padding. Only lengths are read.

    With ``keep``, a folder, what was counted is kept there and not counted again for the same shards, schedule and
    seed. A file that is not what was written is written again.

    Raises:
        UserError: if the phases before the last leave nothing for it.
    """
    if not schedule.exact_epochs or schedule.fitted:
        return schedule
    stream = Stream(shards, schedule.with_last_phase(1 << 40), seed, window_shards=window_shards)
    identity = digest_of(stream.identity)
    file = f"{identity[:16]}.json"
    if keep is not None and (steps := _kept_steps(Store(keep), file, identity)) is not None:
        return schedule.with_last_phase(steps)
    before = sum(phase.steps for phase in schedule.phases[:-1])
    while not stream.done:
        stream.seek(stream.step + 1)
    if stream.step <= before:
        raise UserError(
            f"the phases before {schedule.phases[-1].name!r} use up all documents",
            place="schedule.phases",
            remedy="Give them smaller shares, or smaller batches",
        )
    if keep is not None:
        write_sealed(Store(keep), file, {"of": identity, "last_phase_steps": stream.step - before})
    return schedule.with_last_phase(stream.step - before)


def _kept_steps(store: Store, file: str, identity: str) -> int | None:
    """Return the steps of the last phase that were counted before; None if they are to be counted."""
    try:
        said = read_sealed(store, file) if store.exists(file) else {}
    except IncompleteError:
        return None
    return int(said["last_phase_steps"]) if said.get("of") == identity else None


def check_resolved_on(schedule: Schedule, shards: ShardSet) -> None:
    """Check that a schedule was resolved on these shards.

    Raises:
        UserError: if their domains or tokens differ.
    """
    have = shards.catalog.tokens_per_domain("train")
    said = dict(zip(schedule.domains, schedule.tokens_per_domain, strict=True))
    if have != said:
        raise UserError(
            f"the schedule was resolved on other shards: it counts {said}, but these hold {have}",
            place=str(shards.folder),
            remedy="Resolve it again on these shards",
        )
