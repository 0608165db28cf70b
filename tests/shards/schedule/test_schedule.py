from __future__ import annotations

import itertools
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Intervention, Schedule, ScheduleSettings

HAVE = {"web_best": 30_000, "web_rest": 70_000, "code": 50_000, "books": 10_000}

BASE: dict[str, Any] = {
    "tokens": 160_000,
    "groups": {"web": ["web_best", "web_rest"]},
    "max_epochs": {"web": 2.0, "books": 4.0},
    "stages": [
        {
            "name": "base",
            "share": 0.7,
            "weights": {"web": 0.6, "code": 0.3, "books": 0.1},
            "context_tokens": 64,
            "batch_tokens": 512,
            "learning_rate": {"shape": "cosine", "start": 3e-3, "end": 1e-3, "warmup_tokens": 5_120},
        },
        {
            "name": "long",
            "share": 0.2,
            "weights": {"web": [0.6, 0.2], "code": [0.3, 0.4], "books": [0.1, 0.4]},
            "context_tokens": 256,
            "batch_tokens": 1_024,
            "rope": {"kind": "yarn"},
            "learning_rate": {"shape": "linear", "end": 5e-4},
        },
        {
            "name": "anneal",
            "share": 0.1,
            "weights": {"web_best": 0.5, "code": 0.5},
            "context_tokens": 256,
            "batch_tokens": 1_024,
            "rope": {"kind": "theta", "theta": 500_000},
            "learning_rate": {"shape": "one_minus_sqrt", "end": 0},
        },
    ],
}


def changed(**top: Any) -> dict[str, Any]:
    return {**BASE, **top}


def with_stage(index: int, **values: Any) -> dict[str, Any]:
    stages = [dict(stage) for stage in BASE["stages"]]
    stages[index].update(values)
    return {**BASE, "stages": [{k: v for k, v in stage.items() if v is not None} for stage in stages]}


def resolved(table: dict[str, Any] | None = None, have: dict[str, int] | None = None) -> Schedule:
    return resolve(ScheduleSettings.model_validate(table or BASE), have or HAVE)


def test_three_stages_grow_anneal_and_end_at_exactly_zero() -> None:
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


def test_the_rate_goes_on_where_the_stage_before_ended() -> None:
    schedule = resolved()
    assert [stage.learning_rate.start for stage in schedule.stages] == [3e-3, 1e-3, 5e-4]
    after_warmup = [schedule.at_step(step).learning_rate for step in range(10, schedule.steps)]
    assert after_warmup == sorted(after_warmup, reverse=True)


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


def test_a_group_is_divided_by_its_members_tokens() -> None:
    weights = resolved().at(0).weights
    assert weights == pytest.approx({"web_best": 0.18, "web_rest": 0.42, "code": 0.3, "books": 0.1})
    assert resolved(with_stage(0, weights="natural")).at(0).weights == pytest.approx(
        {name: tokens / 160_000 for name, tokens in HAVE.items()}
    )


def test_a_schedule_round_trips_with_its_digest() -> None:
    schedule = resolved()
    again = Schedule.from_json(schedule.to_json())
    assert again == schedule
    assert again.digest == schedule.digest
    other = resolved(with_stage(2, learning_rate={"shape": "linear", "end": 1e-9}))
    assert other.digest != schedule.digest
    assert resolved(have=dict(reversed(HAVE.items()))).digest == schedule.digest


def test_rope_is_settled_from_the_contexts() -> None:
    ropes = [stage.rope for stage in resolved().stages]
    assert [(rope.kind, rope.factor, rope.original_context_tokens) for rope in ropes] == [
        ("none", 1.0, 64),
        ("yarn", 4.0, 64),
        ("theta", 1.0, 64),
    ]
    assert ropes[2].theta == 500_000


def test_stage_lengths_are_whole_batches() -> None:
    schedule = resolved(changed(tokens=100_001))
    assert [stage.tokens % stage.batch_tokens for stage in schedule.stages] == [0, 0, 0]
    assert [stage.tokens for stage in schedule.stages] == [69_632, 19_456, 9_216]
    tokens = {**BASE, "tokens": None, "stages": [{**stage, "share": None, "tokens": 6_000} for stage in BASE["stages"]]}
    assert [stage.tokens for stage in resolved(tokens).stages] == [5_632, 5_120, 5_120]


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine", "one_minus_sqrt"])
def test_shapes_begin_and_end_where_they_say(shape: str) -> None:
    rate = {"shape": shape, "start": 3e-3} | ({} if shape == "constant" else {"end": 7e-4})
    stage = {"name": "only", "tokens": 10_240, "context_tokens": 64, "batch_tokens": 512, "learning_rate": rate}
    schedule = resolved({"stages": [stage]})
    values = [schedule.at_step(step).learning_rate for step in range(schedule.steps + 1)]
    assert values[0] == 3e-3
    assert values[-1] == (3e-3 if shape == "constant" else 7e-4)
    assert values == sorted(values, reverse=True)
    middle = {"constant": 3e-3, "linear": 1.85e-3, "cosine": 1.85e-3, "one_minus_sqrt": 3e-3 - 2.3e-3 * 0.5**0.5}
    assert values[10] == pytest.approx(middle[shape])


def test_too_many_epochs_are_refused_with_numbers_and_a_way_out() -> None:
    with pytest.raises(UserError) as caught:
        resolved(changed(tokens=800_000))
    message = str(caught.value)
    assert "'books' would be read 9.59 times" in message
    assert "the run has 10,000, and its cap is 4 epochs" in message
    epochs = float(message.rsplit("max_epochs.books = ", 1)[1])
    shorter = int(message.split("schedule to ", 1)[1].split(" tokens")[0].replace(",", ""))
    high = {"web": 99.0, "code": 99.0}
    with pytest.raises(UserError, match="books"):
        resolved(changed(tokens=800_000, max_epochs={**high, "books": epochs - 0.1}))
    assert resolved(changed(tokens=800_000, max_epochs={**high, "books": epochs})).epochs["books"] <= epochs
    assert resolved(changed(tokens=shorter, max_epochs={**high, "books": 4.0})).epochs["books"] <= 4.0


def test_a_groups_cap_holds_for_its_members() -> None:
    with pytest.raises(UserError, match=r"'web_best' would be read .* its cap is 0\.5 epochs"):
        resolved(changed(max_epochs={"web": 0.5}))
    assert resolved(changed(max_epochs={"web": 0.5, "web_best": 2.0, "web_rest": 2.0})).epochs["web_best"] < 2
    with pytest.raises(UserError, match="its cap is 4 epochs"):
        resolved(changed(max_epochs={}, tokens=2_000_000))


def test_one_natural_epoch_stays_within_a_cap_of_one() -> None:
    stages = [{**stage, "weights": "natural"} for stage in BASE["stages"]]
    table = {**BASE, "tokens": None, "epochs": 1, "stages": stages, "max_epochs": {}, "default_max_epochs": 1}
    assert max(resolved(table).epochs.values()) <= 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (with_stage(0, weights={"wiki": 1}), "no domain 'wiki'"),
        (with_stage(0, weights={"cod": 1}), "Did you mean 'code'"),
        (with_stage(1, weights={"code": [0, 1]}), "all weights are zero"),
        (changed(max_epochs={"wb": 1}), "no domain 'wb'"),
        (changed(groups={"web": ["web_best", "web_worst"]}), "no domain 'web_worst'"),
        (changed(groups={"code": ["web_best"]}), "both a domain and a group"),
        (with_stage(0, learning_rate={"start": 1, "warmup_tokens": 999_999}), "warm-up takes 999,999"),
    ],
)
def test_mistakes_against_the_run_name_value_and_remedy(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolved(table)


def test_runs_without_tokens_are_refused() -> None:
    with pytest.raises(UserError, match="no training tokens"):
        resolved(have=dict.fromkeys(HAVE, 0))
    with pytest.raises(UserError, match=r"'code' has weight 0\.3 but no training tokens"):
        resolved(have={**HAVE, "code": 0})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed(tokenz=1), "Extra inputs"),
        (with_stage(0, contxt=1), "Extra inputs"),
        (with_stage(0, batch_tokens=500), "nearest is 512"),
        (with_stage(0, tokens=5_000), "either tokens or share"),
        (with_stage(0, share=0.5), "add up to 0.8"),
        (with_stage(0, share=None, tokens=512), "either every stage"),
        (with_stage(1, name="base"), "both called 'base'"),
        (changed(tokens=None), "need one total"),
        (changed(epochs=1.0), "need one total"),
        (changed(tokens=None, exact_epochs=1), "every stage's weights are natural"),
        (with_stage(0, learning_rate={"end": 1.0, "shape": "linear"}), "needs a start"),
        (with_stage(0, learning_rate={"start": 1.0, "end": 2.0}), "constant rate cannot end"),
        (with_stage(0, weights={"code": -1}), "greater than or equal to 0"),
        (with_stage(0, weights={"code": float("nan")}), "finite"),
        (changed(stages=[]), "at least 1"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        ScheduleSettings.model_validate(table)


def test_interventions_lie_on_top_in_order() -> None:
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


def test_moments_outside_are_refused() -> None:
    schedule = resolved()
    for tokens in (-1, schedule.tokens + 1):
        with pytest.raises(ValueError, match="not within"):
            schedule.at(tokens)
    for step in (-1, schedule.steps + 1):
        with pytest.raises(ValueError, match="not within"):
            schedule.tokens_before(step)


def test_a_fitted_last_stage_changes_only_its_length() -> None:
    schedule = resolved()
    fitted = schedule.with_last_stage(7)
    assert (fitted.fitted, fitted.steps - sum(stage.steps for stage in fitted.stages[:-1])) == (True, 7)
    assert fitted.stages[:-1] == schedule.stages[:-1]
    assert fitted.at(fitted.tokens).learning_rate == 0.0
