from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from shards.schedule.branch import branch
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from tests.shards.schedule.three_phases import BASE, HAVE, changed, resolved

SETTINGS = ScheduleSettings.model_validate(BASE | {"max_epochs": {}, "default_max_epochs": 99})
PARENT = resolved(BASE | {"max_epochs": {}, "default_max_epochs": 99})


def branched(
    step: int, changes: dict[str, Any], parent: Schedule = PARENT, of: ScheduleSettings = SETTINGS
) -> tuple[ScheduleSettings, Schedule]:
    return branch(parent, of, step, changes, HAVE)


def points(schedule: Schedule, until: int | None = None) -> list[Any]:
    """What the schedule says of each step, without the number of its phase."""
    found = [schedule.at_step(step) for step in range(schedule.steps if until is None else until)]
    return [
        (p.tokens, p.name, p.step, p.context_tokens, p.rows, p.learning_rate, p.rope, _rounded(p.weights))
        for p in found
    ]


def _rounded(weights: dict[str, float]) -> dict[str, float]:
    return {name: round(weight, 12) for name, weight in weights.items()}


@given(step=st.integers(0, PARENT.steps - 1))
@settings(max_examples=60, deadline=None)
def test_a_branch_without_changes_says_the_same_of_every_step(step: int) -> None:
    _, schedule = branched(step, {})
    assert (schedule.steps, schedule.tokens) == (PARENT.steps, PARENT.tokens)
    # A rate is computed from the same numbers, so it is the same to the bit.
    assert points(schedule) == points(PARENT)
    for tokens in range(0, PARENT.tokens, 3_511):
        assert schedule.ideal_tokens(tokens) == pytest.approx(PARENT.ideal_tokens(tokens))
    phases = [schedule.at_step(each).phase for each in range(schedule.steps)]
    assert phases == sorted(phases)
    assert schedule.digest != PARENT.digest
    assert Schedule.from_json(schedule.to_json()) == schedule


@given(first=st.integers(0, PARENT.steps - 1), second=st.integers(0, PARENT.steps), rate=st.floats(0, 1e-3))
@settings(max_examples=60, deadline=None)
def test_the_past_stays_through_branches_of_branches(first: int, second: int, rate: float) -> None:
    once_settings, once = branched(first, {"phases.anneal.learning_rate.end": rate, "phases.anneal.tokens": 40_960})
    second = max(first, min(second, once.steps - 1))
    _, twice = branched(second, {"phases.anneal.weights": {"books": 1}}, once, once_settings)
    assert points(once, first) == points(PARENT, first)
    assert points(twice, second) == points(once, second)
    assert twice.at(twice.tokens).learning_rate == rate
    assert twice.at_step(twice.steps - 1).weights["books"] == 1
    assert sum(twice.ideal_tokens(twice.tokens)) == pytest.approx(twice.tokens)
    assert twice.continues(once.digest, second)
    assert twice.continues(PARENT.digest, first)
    assert not twice.continues(once.digest, second + 1)
    assert not twice.continues(PARENT.digest, first + 1)
    assert not once.continues(twice.digest, 0)


def test_decays_from_one_stable_phase() -> None:
    """Warm-up, stable, decay as it is used: one long training, and from it a decay of any length whenever it is due."""
    stable = {
        "name": "stable",
        "tokens": 51_200,
        "context_tokens": 64,
        "batch_tokens": 512,
        "learning_rate": {"start": 1e-3, "warmup_tokens": 1_024},
    }
    table = changed(phases=[stable], tokens=None, max_epochs={}, default_max_epochs=99)
    parent, of = resolved(table), ScheduleSettings.model_validate(table)
    for step in (30, 100):
        decay = {
            "tokens": 5_120,
            "context_tokens": 64,
            "batch_tokens": 512,
            "learning_rate": {"shape": "one_minus_sqrt", "end": 0},
        }
        changes = {"phases.stable.tokens": step * 512, "phases.decay": None} | {
            f"phases.decay.{key}": value for key, value in decay.items()
        }
        changes.pop("phases.decay")
        _, schedule = branched(step, changes, parent, of)
        assert schedule.steps == step + 10
        assert [phase.name for phase in schedule.phases] == ["decay"]
        rates = [schedule.at_step(each).learning_rate for each in range(step, step + 11)]
        assert rates[0] == 1e-3
        assert rates[-1] == 0
        assert rates == sorted(rates, reverse=True)


def test_a_phase_in_progress_may_be_longer_and_keeps_its_curve() -> None:
    step = PARENT.phases[0].steps + 5
    _, schedule = branched(step, {"phases.long.tokens": 65_536})
    first = schedule.phases[0]
    assert (first.name, first.done_tokens, first.tokens) == ("long", 5 * 1_024, 65_536 - 5 * 1_024)
    assert first.learning_rate == PARENT.phases[1].learning_rate
    middle = schedule.at(PARENT.phases[0].tokens + 32_768)
    assert middle.learning_rate == pytest.approx((1e-3 + 5e-4) / 2)


@pytest.mark.parametrize(
    ("step", "changes", "message"),
    [
        (230, {"phases.base.learning_rate.end": 0}, r"phase 'base' was served .* Change 'long' or 'anneal'"),
        (20, {"phases.base.tokens": 8_192}, "has served 10,240 tokens, which is more than 8,192"),
        (10, {"phases.base.context_tokens": 128}, "which is the past and stays"),
        (10, {"phases.base.contxt": 128}, "Extra inputs"),
        (10, {"phases.base.tokens": "x"}, "valid integer"),
        (10, {"phases.anneal.weights": {"wiki": 1}}, "no domain 'wiki'"),
        (10, {"phases.new.tokens": 512}, "Field required"),
        (10, {"phases.long": 3}, r"write phases\.long\.KEY"),
        (10, {"phases.long.tokens.more": 3}, "no table"),
        (10, {"tokens": 3}, "cannot change 'tokens'"),
        (10, {"max_epoch": {}}, "Did you mean 'max_epochs'"),
        (PARENT.steps, {}, "nothing is left"),
        (PARENT.steps + 1, {}, "not one of this schedule's own"),
    ],
)
def test_changes_of_the_past_or_that_do_not_fit_are_refused(step: int, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"(?i){message}"):
        branched(step, changes)


def test_a_branch_of_a_branch_begins_in_its_own_steps() -> None:
    of, schedule = branched(20, {})
    with pytest.raises(UserError, match="own, which are 20 to"):
        branched(19, {}, schedule, of)
    assert branched(20, {}, schedule, of)[1].steps == PARENT.steps


def test_exact_epochs_do_not_branch() -> None:
    table = changed(tokens=None, exact_epochs=1, max_epochs={})
    table["phases"] = [{k: v for k, v in phase.items() if k != "weights"} for phase in table["phases"]]
    with pytest.raises(UserError, match="cannot branch"):
        branched(1, {}, resolved(table), ScheduleSettings.model_validate(table))
