from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.training import TrainSettings
from trainer.spikes import Spikes, intervention, robust_score

SETTINGS = TrainSettings(on_spike="skip", spike_steps=3)


def quiet(spikes: Spikes, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        assert not spikes.note(step, 0, 3.0 - 0.001 * step + 0.01 * (step % 3), 1.0 + 0.05 * (step % 2), SETTINGS)


def test_a_high_loss_is_a_spike_once_it_lasts() -> None:
    spikes = Spikes()
    quiet(spikes, 40)
    assert [spikes.note(step, 0, 9.0, 1.0, SETTINGS) for step in (40, 41, 42)] == [False, False, True]
    assert (spikes.since, spikes.length, max(spikes.losses) < 4) == (40, 3, True)


def test_one_high_step_passes() -> None:
    spikes = Spikes()
    quiet(spikes, 40)
    assert not spikes.note(40, 0, 9.0, 50.0, SETTINGS)
    quiet(spikes, 1, 41)
    assert (spikes.since, spikes.length) == (None, 0)


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (3.0, math.inf), (3.0, 1e6)])
def test_a_norm_or_a_loss_beyond_all_measure_counts(loss: float, norm: float) -> None:
    spikes = Spikes()
    quiet(spikes, 40)
    spikes.note(40, 0, loss, norm, SETTINGS)
    assert spikes.since == 40


def test_another_phase_has_another_loss() -> None:
    spikes = Spikes()
    quiet(spikes, 40)
    assert not any(spikes.note(step, 1, 6.0, 2.0, SETTINGS) for step in range(40, 60))
    assert len(spikes.losses) == 20


@given(values=st.lists(st.floats(1, 10), min_size=5, max_size=60), shift=st.floats(0, 100), factor=st.floats(1.5, 9))
def test_a_score_does_not_depend_on_the_unit(values: list[float], shift: float, factor: float) -> None:
    top = max(values) + shift
    scaled = robust_score(top * factor, [value * factor for value in values])
    assert scaled == pytest.approx(robust_score(top, values), rel=1e-6)
    assert robust_score(top + 1, values) > robust_score(top, values) >= 0


@given(outliers=st.integers(0, 9))
def test_a_few_outliers_do_not_hide_the_next(outliers: int) -> None:
    before = [3.0 + 0.01 * (n % 5) for n in range(30)] + [50.0] * outliers
    assert robust_score(6.0, before) > 6


def test_it_survives_a_checkpoint() -> None:
    spikes = Spikes()
    quiet(spikes, 40)
    spikes.note(40, 0, 9.0, 1.0, SETTINGS)
    again = Spikes.parse(json.loads(json.dumps(asdict(spikes))))
    assert again == spikes
    assert [one.note(41, 0, 9.0, 1.0, SETTINGS) for one in (spikes, again)] == [False, False]


@pytest.mark.parametrize(
    ("how", "changed"),
    [
        ("skip", {"kind": "skip_batch", "from_step": 39, "until_step": 43}),
        ("lower_rate", {"kind": "scale_learning_rate", "from_step": 39, "until_step": 99, "factor": 0.9}),
    ],
)
def test_what_is_changed_begins_with_the_batch_before(how: Any, changed: dict[str, Any]) -> None:
    found = intervention(Spikes(since=40, length=3), 42, 99, SETTINGS.model_copy(update={"on_spike": how}), "abc")
    assert changed.items() <= found.model_dump().items()
    assert found.reason == "spike from step 41 to 43; batches abc"
