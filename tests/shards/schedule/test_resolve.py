from __future__ import annotations

from typing import Any

import pytest

from shards.errors import UserError
from shards.schedule.schedule import Schedule
from tests.shards.schedule.three_phases import BASE, HAVE, changed, resolved, with_phase


def epochs_of(schedule: Schedule) -> dict[str, float]:
    """Return how often each domain is read: the tokens asked of it by the tokens it has."""
    asked = zip(schedule.domains, schedule.ideal_tokens(schedule.tokens), schedule.tokens_per_domain, strict=True)
    return {name: tokens / have for name, tokens, have in asked}


def test_a_group_is_divided_by_its_members_tokens() -> None:
    weights = resolved().at(0).weights
    assert weights == pytest.approx({"web_best": 0.18, "web_rest": 0.42, "code": 0.3, "books": 0.1})
    assert resolved(with_phase(0, weights="natural")).at(0).weights == pytest.approx(
        {name: tokens / 160_000 for name, tokens in HAVE.items()}
    )


def test_rope_is_resolved_from_the_contexts() -> None:
    ropes = [phase.rope for phase in resolved().phases]
    assert [(rope.kind, rope.factor, rope.original_context_tokens) for rope in ropes] == [
        ("none", 1.0, 64),
        ("yarn", 4.0, 64),
        ("theta", 1.0, 64),
    ]
    assert ropes[2].theta == 500_000


def test_phase_lengths_are_whole_batches() -> None:
    schedule = resolved(changed(tokens=100_001))
    assert [phase.tokens % phase.batch_tokens for phase in schedule.phases] == [0, 0, 0]
    assert [phase.tokens for phase in schedule.phases] == [69_632, 19_456, 9_216]
    tokens = {**BASE, "tokens": None, "phases": [{**phase, "share": None, "tokens": 6_000} for phase in BASE["phases"]]}
    assert [phase.tokens for phase in resolved(tokens).phases] == [5_632, 5_120, 5_120]


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
    assert epochs_of(resolved(changed(tokens=800_000, max_epochs={**high, "books": epochs})))["books"] <= epochs
    assert epochs_of(resolved(changed(tokens=shorter, max_epochs={**high, "books": 4.0})))["books"] <= 4.0


def test_a_groups_cap_holds_for_its_members() -> None:
    with pytest.raises(UserError, match=r"'web_best' would be read .* its cap is 0\.5 epochs"):
        resolved(changed(max_epochs={"web": 0.5}))
    own = resolved(changed(max_epochs={"web": 0.5, "web_best": 2.0, "web_rest": 2.0}))
    assert epochs_of(own)["web_best"] < 2
    with pytest.raises(UserError, match="its cap is 4 epochs"):
        resolved(changed(max_epochs={}, tokens=2_000_000))


def test_one_natural_epoch_stays_within_a_cap_of_one() -> None:
    phases = [{**phase, "weights": "natural"} for phase in BASE["phases"]]
    table = {**BASE, "tokens": None, "epochs": 1, "phases": phases, "max_epochs": {}, "default_max_epochs": 1}
    assert max(epochs_of(resolved(table)).values()) <= 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (with_phase(0, weights={"wiki": 1}), "no domain 'wiki'"),
        (with_phase(0, weights={"cod": 1}), "Did you mean 'code'"),
        (with_phase(1, weights={"code": [0, 1]}), "all weights are zero"),
        (changed(max_epochs={"wb": 1}), "no domain 'wb'"),
        (changed(groups={"web": ["web_best", "web_worst"]}), "no domain 'web_worst'"),
        (changed(groups={"code": ["web_best"]}), "both a domain and a group"),
        (with_phase(0, learning_rate={"start": 1, "warmup_tokens": 999_999}), "warm-up takes 999,999"),
        (
            with_phase(0, learning_rate={"shape": "wsd", "start": 1, "warmup_tokens": 9_999, "decay_share": 0.95}),
            r"warm-up \(9,999 tokens\) and decay \(0.95 of the phase\) take more",
        ),
        (with_phase(2, budgets={"wiki": 1}), "no domain 'wiki'"),
        (with_phase(2, budgets={"books": 99_999}), "budgets come to 99,999 tokens, and the phase has 15,360"),
        (with_phase(2, budgets={"web_best": 9, "code": 9}), "come to 18 tokens, .* but no other domain has a weight"),
        (with_phase(2, budgets={"web": 9, "web_best": 9}), "'web_best' has two budgets"),
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


def test_the_rate_continues_from_the_end_of_the_previous_phase() -> None:
    schedule = resolved()
    assert [phase.learning_rate.start for phase in schedule.phases] == [3e-3, 1e-3, 5e-4]
    after_warmup = [schedule.at_step(step).learning_rate for step in range(10, schedule.steps)]
    assert after_warmup == sorted(after_warmup, reverse=True)


def test_factor_and_original_context_of_rope_may_be_given() -> None:
    rope = {"kind": "yarn", "factor": 3.0, "original_context_tokens": 32, "theta": 20_000.0}
    found = resolved(with_phase(1, rope=rope)).phases[1].rope
    assert (found.factor, found.original_context_tokens, found.theta) == (3.0, 32, 20_000.0)
    shrunk = resolved(with_phase(1, rope={"kind": "pi", "original_context_tokens": 512})).phases[1].rope
    assert shrunk.factor == 1.0


def test_weights_of_a_line_are_normalised_at_both_ends() -> None:
    phase = resolved(with_phase(1, weights={"code": [1, 3], "books": [1, 1]})).phases[1]
    domains = resolved().domains
    assert dict(zip(domains, phase.weights_start, strict=True)) == {
        "books": 0.5,
        "code": 0.5,
        "web_best": 0,
        "web_rest": 0,
    }
    assert dict(zip(domains, phase.weights_end, strict=True)) == {
        "books": 0.25,
        "code": 0.75,
        "web_best": 0,
        "web_rest": 0,
    }


def weights_of(table: dict[str, Any], phase: int = 0) -> dict[str, float]:
    schedule = resolved(table)
    return dict(zip(schedule.domains, schedule.phases[phase].weights_start, strict=True))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_natural_weights_follow_sizes_to_a_power(alpha: float) -> None:
    found = weights_of(with_phase(0, weights="natural", alpha=alpha) | {"max_epochs": {}, "default_max_epochs": 99})
    powers = {name: tokens**alpha for name, tokens in HAVE.items()}
    assert found == pytest.approx({name: power / sum(powers.values()) for name, power in powers.items()})


def test_budgets_come_first_and_weights_share_the_rest() -> None:
    table = with_phase(0, budgets={"books": 5_000, "web": 20_000})
    schedule = resolved(table)
    tokens = schedule.phases[0].tokens
    found = weights_of(table)
    assert found["books"] * tokens == pytest.approx(5_000)
    assert found["web_best"] * tokens == pytest.approx(20_000 * 30 / 100)
    assert found["web_rest"] * tokens == pytest.approx(20_000 * 70 / 100)
    assert found["code"] * tokens == pytest.approx(tokens - 25_000)
    whole = weights_of(with_phase(2, budgets={"books": 15_360}) | {"max_epochs": {}}, 2)
    assert whole == {"books": 1.0, "code": 0.0, "web_best": 0.0, "web_rest": 0.0}


@pytest.mark.parametrize(("rescale", "factor"), [("none", 1.0), ("linear", 2.0), ("sqrt", 2**0.5)])
def test_rates_are_given_for_the_first_batch_and_grow_with_it(rescale: str, factor: float) -> None:
    rates = [phase.learning_rate for phase in resolved(changed(rescale=rescale)).phases]
    assert [(rate.start, rate.end) for rate in rates] == [
        (3e-3, 1e-3),
        (pytest.approx(1e-3 * factor), pytest.approx(5e-4 * factor)),
        (pytest.approx(5e-4 * factor), 0.0),
    ]
