"""Branching a schedule: what was served is the past and stays; phases still ahead may change, end, or be added."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

import pydantic

from shards.errors import UserError
from shards.schedule.resolve import first_phase, rate_factor, resolve
from shards.schedule.schedule import Past, Schedule
from shards.schedule.settings import PhaseSettings, ScheduleSettings

_TOP_KEYS: Final = ("groups", "max_epochs", "default_max_epochs", "rescale")
"""Keys of a schedule that a branch may change, besides its phases'."""


def branch(
    parent: Schedule,
    settings: ScheduleSettings,
    step: int,
    changes: Mapping[str, Any],
    tokens_per_domain: Mapping[str, int],
) -> tuple[ScheduleSettings, Schedule]:
    """Return the settings and the schedule of a branch that begins after ``step`` steps.

    Args:
        parent: the schedule that served those steps.
        settings: what it was resolved from.
        step: steps that stay as they were.
        changes: values by key, ``phases.NAME.KEY`` (such as ``phases.anneal.learning_rate.end``) or one of a schedule's
            own keys. A name that is no phase's adds one at the end. The tokens of the phase in progress are those of
            the whole phase.
        tokens_per_domain: as for ``resolve``.

    Returns:
        The settings of what is ahead, for branches of the branch, and the schedule, with its past.

    Raises:
        UserError: if a change is of the past, or does not fit; the parent is not changed.
    """
    if parent.exact_epochs:
        raise UserError(
            "a schedule of exact epochs serves every document equally often, so it cannot branch",
            place="schedule.exact_epochs",
            remedy="Give the schedule tokens or epochs",
        )
    if not parent.past_steps <= step <= parent.steps:
        raise UserError(
            f"step {step} is not one of this schedule's own, which are {parent.past_steps} to {parent.steps}",
            place="--branch",
            remedy="Branch from the training that served it",
        )
    served, ahead = _divided(parent, settings, step)
    table = settings.model_dump(mode="json") | {"tokens": None, "epochs": None}
    for key, value in changes.items():
        _change(table, ahead, served, key, value)
    past = Past(schedule=parent, steps=step)
    try:
        phases = [PhaseSettings.model_validate(phase) for phase in ahead.values()]
        _continue_rate(phases, past, settings)
        made = ScheduleSettings.model_validate({**table, "phases": phases})
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{first['msg']} (found {first['input']!r})", place=f"--branch, key {key}") from None
    return made, resolve(made, tokens_per_domain, past)


def _divided(parent: Schedule, settings: ScheduleSettings, step: int) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the names of phases that lie wholly in the past, and the tables of the others with their whole tokens."""
    order = [phase.name for phase in settings.phases]
    first = order.index(parent.at_step(step - 1).name) if step > parent.past_steps else 0
    whole = {phase.name: phase.tokens + phase.done_tokens for phase in parent.phases}
    ahead = {}
    for phase in settings.phases[first:]:
        table = phase.model_dump(mode="json", exclude_unset=True)
        table.pop("share", None)
        # One that had nothing left when its branch began is not in the parent.
        ahead[phase.name] = table | {"tokens": whole.get(phase.name, phase.tokens)}
    return order[:first], ahead


def _change(table: dict[str, Any], ahead: dict[str, dict[str, Any]], served: list[str], key: str, value: Any) -> None:
    top, _, rest = key.partition(".")
    if top != "phases":
        if top not in _TOP_KEYS:
            near = difflib.get_close_matches(top, ["phases", *_TOP_KEYS], n=1, cutoff=0.0)[0]
            raise UserError(f"a branch cannot change {key!r}", place="--branch", remedy=f"Did you mean {near!r}?")
        _set(table, key.split("."), value)
        return
    name, _, inner = rest.partition(".")
    if name in served:
        raise UserError(
            f"phase {name!r} was served before the branch: it is the past and stays as it was",
            place=f"--branch, key {key}",
            remedy=f"Change {' or '.join(repr(one) for one in ahead)}, or branch from an earlier checkpoint",
        )
    if not inner:
        raise UserError(f"{key!r} names no key of a phase", place="--branch", remedy=f"Write phases.{name}.KEY=VALUE")
    _set(ahead.setdefault(name, {"name": name}), inner.split("."), value)


def _set(table: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = table.get(part)
        table = table.setdefault(part, {}) if isinstance(inner, dict) or inner is None else _not_a_table(path)
    table[path[-1]] = value


def _not_a_table(path: list[str]) -> dict[str, Any]:
    raise UserError(f"{'.'.join(path)!r} leads into a value that is no table", place="--branch")


def _continue_rate(phases: list[PhaseSettings], past: Past, settings: ScheduleSettings) -> None:
    """Let the rate of the phase in progress start where it did."""
    rate = phases[0].learning_rate
    if rate.start is not None or not past.steps:
        return
    last = past.schedule.at_step(past.steps - 1)
    serving = past.schedule.serving(past.steps - 1)
    before = next(phase.learning_rate.start for phase in serving.phases if phase.name == last.name)
    # As it is given for the first phase's batch.
    start = before / rate_factor(settings, last.batch_tokens / first_phase(past.schedule).batch_tokens)
    phases[0] = phases[0].model_copy(update={"learning_rate": rate.model_copy(update={"start": start})})
