from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest

from shards.schedule.settings import LearningRateSettings, PhaseSettings, ScheduleSettings
from tests.shards.schedule.three_phases import BASE, changed, with_phase

_NATURAL = {
    "name": "only",
    "share": 1.0,
    "context_tokens": 64,
    "batch_tokens": 512,
    "learning_rate": {"start": 1e-3},
}


def test_settings_written_whole_are_read_again() -> None:
    settings = ScheduleSettings.model_validate(BASE)
    assert [phase.name for phase in settings.phases] == ["base", "long", "anneal"]
    assert ScheduleSettings.model_validate(json.loads(settings.model_dump_json())) == settings


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed(tokenz=1), "Extra inputs"),
        (with_phase(0, contxt=1), "Extra inputs"),
        (with_phase(0, batch_tokens=500), "nearest is 512"),
        (with_phase(0, tokens=5_000), "either tokens or share"),
        (with_phase(0, share=0.5), "add up to 0.8"),
        (with_phase(0, share=None, tokens=512), "either every phase"),
        (with_phase(1, name="base"), "both called 'base'"),
        (changed(tokens=None), "need one total"),
        (changed(epochs=1.0), "need one total"),
        (changed(tokens=None, exact_epochs=1), "every phase's weights are natural"),
        (with_phase(0, learning_rate={"end": 1.0, "shape": "linear"}), "needs a start"),
        (with_phase(0, learning_rate={"start": 1.0, "end": 2.0}), "constant rate cannot end"),
        (with_phase(0, learning_rate={"shape": "cosine", "start": 1, "end": 0, "end_share": 0}), "same twice"),
        (with_phase(0, learning_rate={"start": 1, "end_share": 0.5}), "constant rate cannot end"),
        (with_phase(0, learning_rate={"shape": "cosine", "start": 1, "decay_share": 0.5}), 'for shape = "wsd"'),
        (with_phase(0, alpha=0.5), "no effect on weights that are given"),
        (changed(tokens=None, exact_epochs=1, phases=[_NATURAL | {"alpha": 0.5}]), "weights are natural"),
        (changed(tokens=None, exact_epochs=1, phases=[_NATURAL | {"budgets": {"code": 9}}]), "weights are natural"),
        (with_phase(0, weights={"code": -1}), "greater than or equal to 0"),
        (with_phase(0, weights={"code": float("nan")}), "finite"),
        (changed(phases=[]), "at least 1"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        ScheduleSettings.model_validate(table)


def test_a_batch_of_broken_rows_names_the_nearest_that_fits() -> None:
    phase = {"name": "only", "tokens": 10, "learning_rate": {"start": 1.0}, "context_tokens": 64}
    for batch, nearest in ((65, 64), (100, 128), (2, 64)):
        with pytest.raises(pydantic.ValidationError, match=f"not a multiple of its context_tokens 64; .* is {nearest}"):
            PhaseSettings.model_validate({**phase, "batch_tokens": batch})
    assert PhaseSettings.model_validate({**phase, "batch_tokens": 128}).batch_tokens == 128


def test_a_constant_rate_may_say_its_one_value_twice() -> None:
    assert LearningRateSettings(start=1e-3, end=1e-3).end == 1e-3


def test_an_old_recipes_stages_are_an_unknown_key() -> None:
    table = {("stages" if key == "phases" else key): value for key, value in BASE.items()}
    with pytest.raises(pydantic.ValidationError) as caught:
        ScheduleSettings.model_validate(table)
    assert {(error["type"], error["loc"]) for error in caught.value.errors()} == {
        ("missing", ("phases",)),
        ("extra_forbidden", ("stages",)),
    }
