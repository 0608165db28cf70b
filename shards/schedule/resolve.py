"""Resolving a schedule against the tokens of a run: concrete phases, checked before anything is trained."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Final

from shards.errors import UserError
from shards.schedule.phase import LearningRate, Phase, Rope
from shards.schedule.schedule import Past, Schedule
from shards.schedule.settings import DEFAULT_DECAY_SHARE, PhaseSettings, ScheduleSettings

_SLACK: Final = 1e-9
"""Relative tolerance: a cap that is met exactly, such as 1 epoch of natural weights, must not fail on rounding."""


def resolve(settings: ScheduleSettings, tokens_per_domain: Mapping[str, int], past: Past | None = None) -> Schedule:
    """Return the schedule over the training tokens of a run.

    With ``past``, the settings are those of the phases after it (see ``shards.schedule.branch``). A first phase that
    has the name of the one in which the past ends continues that: its tokens are those of the phase as a whole.

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
    rate_before: float | None = None
    first = settings.phases[0] if past is None else first_phase(past.schedule)
    for index, (phase, tokens) in enumerate(zip(settings.phases, lengths, strict=True)):
        place = f"schedule.phases[{index}] ({phase.name})"
        start, end = _weights(phase, settings, domains, have, place)
        if phase.budgets:
            sizes = dict(zip(domains, have, strict=True))
            start, end = (_with_budgets(weights, phase, tokens, settings, sizes, place) for weights in (start, end))
        rate = _learning_rate(phase, tokens, rate_before, place)
        rate_before = rate.end
        phases.append(
            Phase(
                name=phase.name,
                tokens=tokens,
                context_tokens=phase.context_tokens,
                batch_tokens=phase.batch_tokens,
                weights_start=start,
                weights_end=end,
                rope=_rope(phase, first.context_tokens),
                learning_rate=_rescaled(rate, settings, phase.batch_tokens / first.batch_tokens),
            )
        )
    if past is not None and not (phases := _after(past, phases)):
        raise UserError(
            "nothing is left to serve after the step that is branched from",
            place="--branch",
            remedy="Give the last phase more tokens, add a phase, or branch from an earlier checkpoint",
        )
    schedule = Schedule(
        domains=domains, tokens_per_domain=have, phases=tuple(phases), exact_epochs=settings.exact_epochs, past=past
    )
    if settings.exact_epochs is None:
        _check_caps(schedule, settings)
    return schedule


def _after(past: Past, phases: list[Phase]) -> list[Phase]:
    """Return the phases after a past, the first of them without what the past served of it.

    Raises:
        UserError: if that phase is shorter than what was served, or has another context or batch.
    """
    served = past.schedule.at_step(past.steps - 1) if past.steps else None
    first = phases[0]
    if served is None or served.name != first.name:
        return phases
    done = past.schedule.served_of_phase(past.steps)
    place = f"schedule.phases ({first.name})"
    if (first.context_tokens, first.batch_tokens) != (served.context_tokens, served.batch_tokens):
        raise UserError(
            f"phase {first.name!r} has served {done:,} tokens with a context of {served.context_tokens:,} and batches "
            f"of {served.batch_tokens:,}, which is the past and stays",
            place=place,
            remedy="End the phase at what it served, and add one after it",
        )
    if first.tokens < done:
        raise UserError(
            f"phase {first.name!r} has served {done:,} tokens, which is more than {first.tokens:,}",
            place=place,
            remedy="Let it have at least as many, or branch from an earlier checkpoint",
        )
    left = first.model_copy(update={"tokens": first.tokens - done, "done_tokens": done})
    return ([left] if left.tokens else []) + phases[1:]


def first_phase(schedule: Schedule) -> Phase:
    """Return the phase with which a training began."""
    while schedule.past is not None:
        schedule = schedule.past.schedule
    return schedule.phases[0]


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
        powers = [tokens**phase.alpha if tokens else 0.0 for tokens in have]
        natural = tuple(power / sum(powers) for power in powers)
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


def _with_budgets(
    weights: tuple[float, ...],
    phase: PhaseSettings,
    phase_tokens: int,
    settings: ScheduleSettings,
    sizes: Mapping[str, int],
    place: str,
) -> tuple[float, ...]:
    """Return weights in which budgets come first, and what they leave is shared as the weights of the others say."""
    fixed = _shares_of_budgets(phase, phase_tokens, settings, sizes, f"{place}.budgets")
    left = 1 - sum(fixed.values())
    others = [0.0 if fixed[name] else weight for name, weight in zip(sizes, weights, strict=True)]
    # A budget that takes all is met by rounding.
    if left < -_SLACK or (left > _SLACK and not sum(others)):
        raise UserError(
            f"the budgets come to {(1 - left) * phase_tokens:,.0f} tokens, and the phase has {phase_tokens:,}"
            + ("" if left < 0 else ", but no other domain has a weight"),
            place=f"{place}.budgets",
            remedy="Change the budgets, the phase's length, or the weights of other domains",
        )
    scale = left / sum(others) if sum(others) else 0.0
    mixed = [given or weight * scale for given, weight in zip(fixed.values(), others, strict=True)]
    return tuple(weight / sum(mixed) for weight in mixed)


def _shares_of_budgets(
    phase: PhaseSettings, phase_tokens: int, settings: ScheduleSettings, sizes: Mapping[str, int], place: str
) -> dict[str, float]:
    shares = dict.fromkeys(sizes, 0.0)
    for name, budget in phase.budgets.items():
        _known(name, (*sizes, *settings.groups), place)
        members = settings.groups.get(name, (name,))
        if twice := [member for member in members if shares[member]]:
            raise UserError(f"{twice[0]!r} has two budgets", place=place, remedy="Leave one out")
        whole = sum(sizes[member] for member in members)
        if not whole:
            raise UserError(
                f"{name!r} has a budget of {budget:,} but no training tokens", place=place, remedy="Leave it out"
            )
        for member in members:
            shares[member] = budget * sizes[member] / whole / phase_tokens
    return shares


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
    if rate.warmup_tokens >= tokens:
        raise UserError(
            f"warm-up takes {rate.warmup_tokens:,} of the phase's {tokens:,} tokens",
            place=f"{place}.learning_rate.warmup_tokens",
            remedy=f"Shorten it, for example to {tokens // 10:,}",
        )
    end = rate.end_of(start)
    if rate.shape != "wsd":
        return LearningRate(shape=rate.shape, start=start, end=end, warmup_tokens=rate.warmup_tokens)
    share = rate.decay_share or DEFAULT_DECAY_SHARE
    if rate.warmup_tokens > tokens * (1 - share) * (1 + _SLACK):
        raise UserError(
            f"warm-up ({rate.warmup_tokens:,} tokens) and decay ({share:g} of the phase) take more than the phase's "
            f"{tokens:,} tokens",
            place=f"{place}.learning_rate",
            remedy="Shorten one of them",
        )
    return LearningRate(
        shape=rate.decay_shape or "one_minus_sqrt",
        start=start,
        end=end,
        warmup_tokens=rate.warmup_tokens,
        decay_share=share,
    )


def rate_factor(settings: ScheduleSettings, growth: float) -> float:
    """Return by how much rates grow where the batch has grown ``growth`` times since the first phase.

    Linear in the batch for SGD (arXiv 1706.02677), by its root for Adam (arXiv 2205.10287).
    """
    match settings.rescale:
        case "none":
            return 1.0
        case "linear":
            return growth
        case "sqrt":
            return math.sqrt(growth)


def _rescaled(rate: LearningRate, settings: ScheduleSettings, growth: float) -> LearningRate:
    """Return a rate that is given for the first phase's batch as it is for another batch."""
    factor = rate_factor(settings, growth)
    return rate.model_copy(update={"start": rate.start * factor, "end": rate.end * factor})


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
