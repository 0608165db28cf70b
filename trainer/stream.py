"""The training stream: the batches of a schedule, in an order that is a pure function of shards, schedule and seed.

Cursors are global: the stream plans whole steps, lengths only, and each rank reads the tokens of its own rows. So what
is served does not depend on the number of ranks, and a run resumes on another number of them from the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pydantic

from shards.errors import UserError
from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from trainer.batch import Batch, Placed, StepPlan, assemble, micro_batches
from trainer.cursor import Cursor, CursorState, Group
from trainer.mixing import Mixer


class _StreamState(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    version: Literal[1] = 1
    seed: int
    window_shards: int | None
    schedule: str
    shards: str
    step: int
    # Per domain: served, epoch, start, count, packings; a list, because a checkpoint's state stays under 1 kB.
    domains: dict[str, tuple[int, int, int, int, list[tuple[int, int]]]]


class Stream:
    """Serves the steps of a schedule from shards.

    Args:
        shards: the shards of a run; only their ``train`` split is served.
        schedule: resolved on these shards. One with ``exact_epochs`` has to be fitted first: see ``fit``.
        seed: of the order of documents and rows.
        window_shards: shards whose documents are permuted together, None for all; see ``DocumentOrder``.
        state: what ``state()`` gave, to stand where it was taken, at once: one group per domain is rebuilt.

    Raises:
        UserError: if the schedule was resolved on other shards or is not fitted, or the state is of another run.
    """

    def __init__(
        self,
        shards: ShardSet,
        schedule: Schedule,
        seed: int,
        *,
        window_shards: int | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        check_resolved_on(schedule, shards)
        if schedule.exact_epochs and not schedule.fitted:
            raise UserError(
                "the schedule serves exact epochs, but its last stage is not counted yet",
                place="schedule.exact_epochs",
                remedy="Pass it through trainer.stream.fit",
            )
        self.shards, self.schedule, self.seed, self.window_shards = shards, schedule, seed, window_shards
        self._identity = {
            "seed": seed,
            "window_shards": window_shards,
            "schedule": schedule.digest,
            "shards": shards.catalog.digest,
        }
        self._planned: tuple[int, StepPlan] | None = None
        if state is None:
            self._stand(0, {})
        else:
            self._resume(state)

    @property
    def step(self) -> int:
        """The next step, over all stages."""
        return self._step

    def state(self) -> dict[str, Any]:
        """Return where it stands, before step ``step``, as plain values for JSON: some hundred bytes."""
        domains = {}
        for name, cursor, served in zip(self.schedule.domains, self._cursors, self._mixer.served, strict=True):
            now = cursor.state
            domains[name] = (served, now.epoch, now.start, now.count, now.packings)
        state = _StreamState.model_validate({**self._identity, "step": self._step, "domains": domains})
        return state.model_dump(mode="json")

    def seek(self, step: int) -> None:
        """Go to a step by planning all that lies before it; from the beginning, where it lies behind.

        Takes time in proportion to the rows between (no token is read); a stream made from a state does not.

        Raises:
            ValueError: if the schedule has no such step and does not end there.
        """
        if not 0 <= step <= self.schedule.steps:
            raise ValueError(f"step {step} is not within 0 and {self.schedule.steps}")
        if step < self._step:
            self._stand(0, {})
        while self._step < step:
            self._next()

    def plan(self, step: int) -> StepPlan:
        """Return the plan of a step, all ranks' rows; the stream then stands after it.

        Raises:
            ValueError: if the schedule has no such step.
        """
        if self._planned is None or self._planned[0] != step:
            if not 0 <= step < self.schedule.steps:
                raise ValueError(f"the schedule has {self.schedule.steps} steps, so none {step}")
            self.seek(step)
            self._planned = step, self._next()
        return self._planned[1]

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Read some consecutive rows of a step, all of them by default."""
        return assemble(self.shards, self.plan(step).part(rows))

    def rows_for(self, step: int, micro_batch_rows: int, rank: int = 0, world: int = 1) -> list[slice]:
        """Plan a step and give a rank's micro-batches in it; see ``trainer.batch.micro_batches``.

        A rank that has none in this step stands after it all the same.
        """
        return micro_batches(self.plan(step).rows, micro_batch_rows, rank, world)

    def _resume(self, state: Mapping[str, Any]) -> None:
        try:
            parsed = _StreamState.model_validate(state)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(
                f"this is not a stream's state: {where}: {first['msg']}",
                place="checkpoint",
                remedy="Remove this checkpoint: an older one is gone on from, or training starts anew",
            ) from None
        for name, here in self._identity.items():
            if (there := getattr(parsed, name)) != here:
                raise UserError(
                    f"the checkpoint was taken with {name} {there}, this run has {here}",
                    place="checkpoint",
                    remedy="Resume on what it was taken with, or start a new run from its weights",
                )
        self._stand(parsed.step, parsed.domains)

    def _stand(self, step: int, domains: Mapping[str, tuple[int, int, int, int, list[tuple[int, int]]]]) -> None:
        self._step = step
        self._planned = None
        self._cursors = []
        served = []
        for name in self.schedule.domains:
            given, epoch, start, count, packings = domains.get(name, (0, 0, 0, 0, []))
            served.append(given)
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
        self._mixer = Mixer(self.schedule, served)

    def _next(self) -> StepPlan:
        """Plan the next step."""
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
        """True if every domain served its exact epochs; never without ``exact_epochs``."""
        return all(cursor.done for cursor in self._cursors)


def fit(shards: ShardSet, schedule: Schedule, seed: int, *, window_shards: int | None = None) -> Schedule:
    """Return an ``exact_epochs`` schedule its true length, by planning it; any other schedule as it is.

    Rows hold padding, so an epoch takes more row slots than it has tokens, and how many depends on where the context
    changes. All stages but the last keep their tokens; the last takes the rows that are left, so that its learning
    rate ends where the documents do. Only the last step may hold rows that are all padding. Reads lengths only.

    Raises:
        UserError: if the stages before the last leave nothing for it.
    """
    if not schedule.exact_epochs or schedule.fitted:
        return schedule
    stream = Stream(shards, schedule.with_last_stage(1 << 40), seed, window_shards=window_shards)
    before = sum(stage.steps for stage in schedule.stages[:-1])
    while not stream.done:
        stream.seek(stream.step + 1)
    if stream.step <= before:
        raise UserError(
            f"the stages before {schedule.stages[-1].name!r} take all documents",
            place="schedule.stages",
            remedy="Give them smaller shares, or smaller batches",
        )
    return schedule.with_last_stage(stream.step - before)


def check_resolved_on(schedule: Schedule, shards: ShardSet) -> None:
    """Check that a schedule was resolved on these shards.

    Raises:
        UserError: if their domains or tokens differ.
    """
    have = shards.catalog.tokens_per_domain("train")
    said = dict(zip(schedule.domains, schedule.tokens_per_domain, strict=True))
    if have != said:
        raise UserError(
            f"the schedule was resolved on other shards: it counts {said}, they hold {have}",
            place=str(shards.folder),
            remedy="Resolve it again on these shards",
        )
