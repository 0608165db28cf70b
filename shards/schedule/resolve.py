"""Resolving a schedule against the tokens of a run: concrete phases, checked before anything is trained."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from shards.errors import UserError
from shards.schedule.schedule import LearningRate, Phase, Rope, Schedule
from shards.schedule.settings import PhaseSettings, ScheduleSettings

_SLACK: Final = 1e-9
"""Relative tolerance: a cap that is met exactly, such as 1 epoch of natural weights, must not fail on rounding."""


def resolve(settings: ScheduleSettings, tokens_per_domain: Mapping[str, int]) -> Schedule:
    """Return the schedule over the training tokens of a run.

    Phase lengths are rounded down to whole batches, at least one. The epoch caps are checked in tokens, and the rows of
    an epoch have at least as many slots as the epoch has tokens; so a schedule that passes never reads more than its
    caps allow, except for the one row by which mixing may be ahead.

    Raises:
        UserError: if a weight names an unknown domain, or a domain would be read more often than its cap allows.
    """
    domains = tuple(sorted(tokens_per_domain))
    have = tuple(tokens_per_domain[name] for name in domains)
    if not sum(have):
        raise UserError(
            "the run has no training tokens", place="schedule", remedy="Look at the drop statistics: headrace inspect"
        )
    _check_groups(settings, domains)
    lengths = _lengths(settings, sum(have))
    phases: list[Phase] = []
    for index, (phase, tokens) in enumerate(zip(settings.phases, lengths, strict=True)):
        place = f"schedule.phases[{index}] ({phase.name})"
        start, end = _weights(phase, settings, domains, have, place)
        phases.append(
            Phase(
                name=phase.name,
                tokens=tokens,
                context_tokens=phase.context_tokens,
                batch_tokens=phase.batch_tokens,
                weights_start=start,
                weights_end=end,
                rope=_rope(phase, settings.phases[0].context_tokens),
                learning_rate=_learning_rate(phase, tokens, phases[-1].learning_rate.end if phases else None, place),
            )
        )
    schedule = Schedule(
        domains=domains, tokens_per_domain=have, phases=tuple(phases), exact_epochs=settings.exact_epochs
    )
    if settings.exact_epochs is None:
        _check_caps(schedule, settings)
    return schedule


def _lengths(settings: ScheduleSettings, have: int) -> list[int]:
    total = settings.tokens or round((settings.epochs or settings.exact_epochs or 0) * have)
    lengths = []
    for phase in settings.phases:
        wanted = phase.tokens if phase.tokens is not None else (phase.share or 0.0) * total
        lengths.append(max(1, int(wanted * (1 + _SLACK) // phase.batch_tokens)) * phase.batch_tokens)
    return lengths


def _check_groups(settings: ScheduleSettings, domains: tuple[str, ...]) -> None:
    for group, members in settings.groups.items():
        if group in domains:
            raise UserError(
                f"{group!r} is both a domain and a group", place="schedule.groups", remedy="Rename the group"
            )
        for member in members:
            _known(member, domains, f"schedule.groups.{group}")
    for name in settings.max_epochs:
        _known(name, (*domains, *settings.groups), "schedule.max_epochs")


def _known(name: str, names: tuple[str, ...], place: str) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else f"The run has {', '.join(names)}"
        raise UserError(f"the run has no domain {name!r}", place=place, remedy=remedy)


def _weights(
    phase: PhaseSettings, settings: ScheduleSettings, domains: tuple[str, ...], have: tuple[int, ...], place: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the weights at the phase's start and end, each in the order of ``domains`` and adding up to 1."""
    if phase.weights == "natural":
        natural = tuple(tokens / sum(have) for tokens in have)
        return natural, natural
    tokens = dict(zip(domains, have, strict=True))
    ends: list[tuple[float, ...]] = []
    for end in (0, 1):
        parts = dict.fromkeys(domains, 0.0)
        for name, weight in phase.weights.items():
            _known(name, (*domains, *settings.groups), f"{place}.weights")
            value = weight[end] if isinstance(weight, tuple) else weight
            members = settings.groups.get(name, (name,))
            whole = sum(tokens[member] for member in members)
            if value and not whole:
                raise UserError(
                    f"domain {name!r} has weight {value:g} but no training tokens",
                    place=f"{place}.weights",
                    remedy="Leave it out, or look in the drop statistics for where its documents went",
                )
            for member in members if whole else ():
                parts[member] += value * tokens[member] / whole
        total = sum(parts.values())
        if not total:
            raise UserError("all weights are zero", place=f"{place}.weights", remedy="Give a domain a positive weight")
        ends.append(tuple(parts[name] / total for name in domains))
    return ends[0], ends[1]


def _rope(phase: PhaseSettings, first_context: int) -> Rope:
    original = phase.rope.original_context_tokens or first_context
    factor = 1.0
    if phase.rope.kind in ("pi", "yarn"):
        factor = phase.rope.factor or max(1.0, phase.context_tokens / original)
    return Rope(kind=phase.rope.kind, theta=phase.rope.theta, factor=factor, original_context_tokens=original)


def _learning_rate(phase: PhaseSettings, tokens: int, before: float | None, place: str) -> LearningRate:
    rate = phase.learning_rate
    start = rate.start if rate.start is not None else before
    assert start is not None, "the settings check that the first phase has a start"
    end = rate.end if rate.end is not None else start
    if rate.warmup_tokens >= tokens:
        raise UserError(
            f"warm-up takes {rate.warmup_tokens:,} of the phase's {tokens:,} tokens",
            place=f"{place}.learning_rate.warmup_tokens",
            remedy=f"Shorten it, for example to {tokens // 10:,}",
        )
    return LearningRate(shape=rate.shape, start=start, end=end, warmup_tokens=rate.warmup_tokens)


def _cap(name: str, settings: ScheduleSettings) -> float:
    """Return a domain's cap: its own, or else the lowest of its groups', or else the default."""
    if name in settings.max_epochs:
        return settings.max_epochs[name]
    groups = [
        settings.max_epochs[group]
        for group, members in settings.groups.items()
        if name in members and group in settings.max_epochs
    ]
    return min(groups, default=settings.default_max_epochs)


def _check_caps(schedule: Schedule, settings: ScheduleSettings) -> None:
    asked = schedule.ideal_tokens(schedule.tokens)
    for name, tokens, have in zip(schedule.domains, asked, schedule.tokens_per_domain, strict=True):
        cap = _cap(name, settings)
        if tokens > cap * have * (1 + _SLACK):
            fits = int(schedule.tokens * cap * have / tokens)
            raise UserError(
                f"domain {name!r} would be read {tokens / have:.2f} times: the schedule asks for {round(tokens):,} "
                f"tokens of it, the run has {have:,}, and its cap is {cap:g} epochs",
                place="schedule",
                remedy=f"Lower its weights, shorten the schedule to {fits:,} tokens, "
                f"or allow it with max_epochs.{name} = {tokens / have + 0.005:.2f}",
            )
