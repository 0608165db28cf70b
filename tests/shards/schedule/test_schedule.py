from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from shards.schedule.schedule import FORMAT, Intervention, Schedule
from tests.shards.schedule.three_phases import HAVE, resolved, with_phase


def test_three_phases_grow_anneal_and_end_at_exactly_zero() -> None:
    schedule = resolved()
    points = [schedule.at_step(step) for step in range(schedule.steps)]
    assert [name for name, _ in itertools.groupby(point.name for point in points)] == ["base", "long", "anneal"]
    assert [context for context, _ in itertools.groupby(point.context_tokens for point in points)] == [64, 256]
    assert 0 < points[0].learning_rate == pytest.approx(3e-3 * 512 / 5_120)
    assert max(point.learning_rate for point in points) == 3e-3
    assert all(point.learning_rate > 0 for point in points)
    end = schedule.at(schedule.tokens)
    assert (end.learning_rate, end.step, end.name) == (0.0, schedule.steps, "anneal")
    assert points[-1].weights == {"books": 0.0, "code": 0.5, "web_best": 0.5, "web_rest": 0.0}


@given(share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_every_point_is_consistent(share: float) -> None:
    schedule = resolved()
    tokens = int(share * schedule.tokens)
    point = schedule.at(tokens)
    assert point == schedule.at(tokens)
    assert sum(point.weights.values()) == pytest.approx(1)
    assert point.rows * point.context_tokens == point.batch_tokens
    assert sum(schedule.ideal_tokens(tokens)) == pytest.approx(tokens)
    if point.step < schedule.steps:
        assert schedule.tokens_before(point.step) <= tokens < schedule.tokens_before(point.step + 1)


def test_the_ideal_is_the_integral_of_the_weights() -> None:
    schedule = resolved()
    summed = dict.fromkeys(schedule.domains, 0.0)
    for step in range(schedule.steps):
        point = schedule.at_step(step)
        middle = schedule.at(point.tokens + point.batch_tokens // 2)
        for name, weight in middle.weights.items():
            summed[name] += weight * point.batch_tokens
    assert list(summed.values()) == pytest.approx(schedule.ideal_tokens(schedule.tokens))


def test_a_schedule_round_trips_with_its_digest() -> None:
    schedule = resolved()
    again = Schedule.from_json(schedule.to_json())
    assert again == schedule
    assert again.digest == schedule.digest
    other = resolved(with_phase(2, learning_rate={"shape": "linear", "end": 1e-9}))
    assert other.digest != schedule.digest
    assert resolved(have=dict(reversed(HAVE.items()))).digest == schedule.digest


def test_interventions_are_applied_on_top_in_order() -> None:
    schedule = resolved()
    changes = [
        Intervention(kind="scale_learning_rate", from_step=10, until_step=30, factor=0.5, reason="spike at step 9"),
        Intervention(kind="skip_batch", from_step=20, until_step=21),
        Intervention(kind="scale_learning_rate", from_step=25, until_step=30, factor=0.5),
    ]
    for step in range(40):
        plain, point = schedule.at_step(step), schedule.at_step(step, changes)
        factor = 1 if not 10 <= step < 30 else 0.25 if step >= 25 else 0.5
        assert point.learning_rate == plain.learning_rate * factor
        assert point.skipped == (step == 20)
        assert (point.tokens, point.weights) == (plain.tokens, plain.weights)


def test_points_outside_are_refused() -> None:
    schedule = resolved()
    for tokens in (-1, schedule.tokens + 1):
        with pytest.raises(ValueError, match="not between"):
            schedule.at(tokens)
    for step in (-1, schedule.steps + 1):
        with pytest.raises(ValueError, match="not between"):
            schedule.tokens_before(step)


def test_a_fitted_last_phase_changes_only_its_length() -> None:
    schedule = resolved()
    fitted = schedule.with_last_phase(7)
    assert (fitted.fitted, fitted.steps - sum(phase.steps for phase in fitted.phases[:-1])) == (True, 7)
    assert fitted.phases[:-1] == schedule.phases[:-1]
    assert fitted.at(fitted.tokens).learning_rate == 0.0


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not JSON"),
        ("[]", "not a schedule"),
        ("{}", "not a schedule: domains"),
        ('{"version": "2"}', "not a schedule: version"),
        (json.dumps({"version": FORMAT, "stages": []}), "not a schedule: domains"),
        (json.dumps({"version": 1, "stages": []}), "has format 1, and this version of headrace reads format 3"),
        (json.dumps({"version": 4}), "has format 4"),
    ],
)
def test_what_is_not_a_schedule_of_this_format_is_refused(text: str, what: str) -> None:
    with pytest.raises(UserError, match=what) as caught:
        Schedule.from_json(text, "run/schedule.json")
    assert (caught.value.place, caught.value.remedy) == ("run/schedule.json", "Run the recipe again")
