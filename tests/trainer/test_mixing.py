from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from trainer.mixing import Mixer

RATE = {"shape": "constant", "start": 1e-3}


def schedule_of(phases: list[dict[str, object]], domains: int) -> Schedule:
    full = [{"name": str(i), "learning_rate": RATE, **phase} for i, phase in enumerate(phases)]
    settings = ScheduleSettings.model_validate({"phases": full, "default_max_epochs": 1e9})
    return resolve(settings, {f"d{i}": 1_000 for i in range(domains)})


weight = st.floats(0.001, 1)


@st.composite
def schedules(draw: st.DrawFn, *, contexts: tuple[int, ...]) -> Schedule:
    domains = draw(st.integers(1, 6))
    phases: list[dict[str, object]] = []
    for context in contexts:
        weights = {f"d{i}": (draw(weight), draw(weight)) for i in range(domains)}
        rows = draw(st.integers(1, 5))
        tokens = rows * context * draw(st.integers(1, 30))
        phases.append({"weights": weights, "context_tokens": context, "batch_tokens": rows * context, "tokens": tokens})
    return schedule_of(phases, domains)


def worst_error(schedule: Schedule) -> dict[int, float]:
    """By phase, the greatest distance from the ideal after any of its rows, in rows."""
    mixer = Mixer(schedule, [0] * len(schedule.domains))
    worst: dict[int, float] = {}
    tokens = 0
    for index, phase in enumerate(schedule.phases):
        for _ in range(phase.tokens // phase.context_tokens):
            mixer.serve(mixer.choose(tokens, phase.context_tokens), phase.context_tokens)
            tokens += phase.context_tokens
            ideal = schedule.ideal_tokens(tokens)
            error = max(abs(given - owed) for given, owed in zip(mixer.served, ideal, strict=True))
            worst[index] = max(worst.get(index, 0.0), error / phase.context_tokens)
    assert sum(mixer.served) == schedule.tokens
    return worst


def bound(domains: int) -> float:
    return 1 - 1 / (2 * domains - 2) if domains > 1 else 0.0


@given(schedule=schedules(contexts=(16, 16, 16)))
@settings(max_examples=150, deadline=None)
def test_no_domain_is_ever_further_off_its_weight_than_the_least_that_can_be_promised(schedule: Schedule) -> None:
    assert max(worst_error(schedule).values()) <= bound(len(schedule.domains)) + 1e-7


@pytest.mark.parametrize("domains", [2, 3, 4, 7, 12])
def test_equal_and_nearly_equal_weights_come_near_the_bound_and_never_pass_it(domains: int) -> None:
    worst = 0.0
    for tilt in (0.0, 1e-6, 0.01, 0.3):
        weights = {f"d{i}": 1 + tilt * i for i in range(domains)}
        phase = {"weights": weights, "context_tokens": 4, "batch_tokens": 4 * domains, "tokens": 4 * domains * 40}
        worst = max(worst, *worst_error(schedule_of([phase], domains)).values())
    assert worst <= bound(domains) + 1e-7
    # Among m equal domains, the first row alone leaves its domain 1 - 1/m ahead or another as far behind.
    assert worst >= 0.5 * bound(domains)


def test_domains_that_are_never_asked_for_do_not_loosen_the_bound() -> None:
    weights = {"d0": 0.6, "d1": 0.4, "d2": 0.0, "d3": 0.0}
    phase = {"weights": weights, "context_tokens": 4, "batch_tokens": 16, "tokens": 16 * 50}
    assert max(worst_error(schedule_of([phase], 4)).values()) <= 0.5 + 1e-7


@given(schedule=schedules(contexts=(8, 16, 64)))
@settings(max_examples=80, deadline=None)
def test_a_longer_context_adds_at_most_the_debt_it_begins_with(schedule: Schedule) -> None:
    # Debts below one short row come along, so the bound is a long and a short row.
    assert max(worst_error(schedule).values()) < 1.5 + 1e-9


def test_constant_weights_lead_to_an_even_order() -> None:
    phase = {"weights": {"d0": 3, "d1": 1}, "context_tokens": 4, "batch_tokens": 16, "tokens": 64}
    mixer = Mixer(schedule_of([phase], 2), [0, 0])
    order = []
    for row in range(16):
        order.append(mixer.choose(row * 4, 4))
        mixer.serve(order[-1], 4)
    assert [order[i : i + 4].count(1) for i in range(0, 16, 4)] == [1, 1, 1, 1]


@given(schedule=schedules(contexts=(8, 16)), cut=st.integers(0, 400))
@settings(max_examples=40, deadline=None)
def test_served_is_all_its_state(schedule: Schedule, cut: int) -> None:
    mixer = Mixer(schedule, [0] * len(schedule.domains))
    tokens = 0
    for phase in schedule.phases:
        for _ in range(phase.tokens // phase.context_tokens):
            if tokens >= cut:
                fresh = Mixer(schedule, mixer.served)
                assert fresh.choose(tokens, phase.context_tokens) == mixer.choose(tokens, phase.context_tokens)
            mixer.serve(mixer.choose(tokens, phase.context_tokens), phase.context_tokens)
            tokens += phase.context_tokens


def test_a_domain_of_weight_zero_is_never_chosen() -> None:
    phase = {"weights": {"d0": 1, "d1": [0, 0]}, "context_tokens": 4, "batch_tokens": 16, "tokens": 64}
    mixer = Mixer(schedule_of([phase], 2), [0, 0])
    for row in range(16):
        assert mixer.choose(row * 4, 4) == 0
        mixer.serve(0, 4)


@pytest.mark.parametrize("gone", [0, 1])
def test_exhausted_domains_leave_the_rest_to_the_others(gone: int) -> None:
    phase = {"weights": {"d0": 3, "d1": 1}, "context_tokens": 4, "batch_tokens": 16, "tokens": 64}
    mixer = Mixer(schedule_of([phase], 2), [0, 0])
    mixer.exhaust(gone)
    for row in range(16):
        assert mixer.choose(row * 4, 4) == 1 - gone
        mixer.serve(1 - gone, 4)
    mixer.exhaust(1 - gone)
    assert mixer.choose(0, 4) == -1
