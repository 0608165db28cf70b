from __future__ import annotations

import pytest

from tests.shards.schedule.three_phases import resolved


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine", "one_minus_sqrt"])
def test_shapes_begin_and_end_where_they_say(shape: str) -> None:
    rate = {"shape": shape, "start": 3e-3} | ({} if shape == "constant" else {"end": 7e-4})
    phase = {"name": "only", "tokens": 10_240, "context_tokens": 64, "batch_tokens": 512, "learning_rate": rate}
    schedule = resolved({"phases": [phase]})
    values = [schedule.at_step(step).learning_rate for step in range(schedule.steps + 1)]
    assert values[0] == 3e-3
    assert values[-1] == (3e-3 if shape == "constant" else 7e-4)
    assert values == sorted(values, reverse=True)
    middle = {"constant": 3e-3, "linear": 1.85e-3, "cosine": 1.85e-3, "one_minus_sqrt": 3e-3 - 2.3e-3 * 0.5**0.5}
    assert values[10] == pytest.approx(middle[shape])


def rates(tokens: int = 10_240, **rate: object) -> list[float]:
    phase = {"name": "only", "tokens": tokens, "context_tokens": 64, "batch_tokens": 512, "learning_rate": rate}
    schedule = resolved({"phases": [phase]})
    return [schedule.at_step(step).learning_rate for step in range(schedule.steps + 1)]


def test_a_cosine_ends_at_a_tenth_and_a_linear_line_stays_unless_told() -> None:
    assert rates(shape="cosine", start=3e-3)[-1] == pytest.approx(3e-4)
    assert rates(shape="cosine", start=3e-3, end_share=0.5)[-1] == 1.5e-3
    assert rates(shape="cosine", start=3e-3, end=0)[-1] == 0
    assert set(rates(shape="linear", start=3e-3)) == {3e-3}


@pytest.mark.parametrize("shape", ["linear", "cosine", "one_minus_sqrt"])
@pytest.mark.parametrize("warmup", [0, 2_048])
def test_warm_up_stable_decay(shape: str, warmup: int) -> None:
    values = rates(shape="wsd", start=2e-3, decay_share=0.25, decay_shape=shape, warmup_tokens=warmup)
    assert values[: warmup // 512] == pytest.approx([2e-3 * (step + 1) / 4 for step in range(warmup // 512)])
    assert set(values[warmup // 512 : 16]) == {2e-3}
    # The decay is the same as a phase of its own over the last quarter.
    assert values[15:] == pytest.approx(rates(5 * 512, shape=shape, start=2e-3, end=0))


def test_wsd_decays_to_zero_over_the_last_fifth_by_default() -> None:
    values = rates(shape="wsd", start=2e-3)
    assert set(values[:17]) == {2e-3}
    assert 0 == values[-1] < values[-2] < values[17] < 2e-3


def test_the_decay_moves_with_the_length_of_its_phase() -> None:
    phase = {"name": "only", "share": 1.0, "context_tokens": 64, "batch_tokens": 512}
    schedule = resolved({"phases": [phase | {"learning_rate": {"shape": "wsd", "start": 1e-3}}], "exact_epochs": 1})
    longer = schedule.with_last_phase(1_000)
    assert longer.at_step(800).learning_rate == 1e-3 > longer.at_step(801).learning_rate
    assert longer.at_step(1_000).learning_rate == 0


@pytest.mark.parametrize("done", [0, 512, 4_096])
def test_what_is_left_of_a_phase_owes_what_the_whole_owes_after_what_is_done(done: int) -> None:
    weights = {"code": [0.9, 0.1], "books": [0.1, 0.9]}
    phase = {"name": "only", "tokens": 8_192, "context_tokens": 64, "batch_tokens": 512, "weights": weights}
    schedule = resolved({"phases": [phase | {"learning_rate": {"start": 1}}], "default_max_epochs": 99})
    whole = schedule.phases[0]
    left = whole.model_copy(update={"tokens": whole.tokens - done, "done_tokens": done})
    for domain in range(len(schedule.domains)):
        assert left.weight(domain, 100) == pytest.approx(whole.weight(domain, done + 100))
        for tokens in (0, 512, left.tokens):
            owed = whole.owed(domain, done + tokens) - whole.owed(domain, done)
            assert left.owed(domain, tokens) == pytest.approx(owed)
