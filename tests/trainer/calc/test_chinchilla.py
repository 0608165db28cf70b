from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.calc.chinchilla import BESIROGLU, HOFFMANN, rule_of_thumb, smaller_for_longer


def test_ten_to_the_23_flops() -> None:
    parameters, tokens = BESIROGLU.optimum(1e23)
    assert parameters == pytest.approx(29.4e9, rel=2e-3)
    assert tokens == pytest.approx(566e9, rel=1e-3)
    assert BESIROGLU.loss(parameters, tokens) == pytest.approx(2.032, abs=5e-4)


def test_hoffmanns_printed_constants_contradict_their_table() -> None:
    parameters, tokens = HOFFMANN.optimum(5.76e23)
    assert parameters / 67e9 < 0.5
    assert tokens / parameters == pytest.approx(93, abs=1)
    assert BESIROGLU.optimum(5.76e23)[0] == pytest.approx(67e9, rel=0.1)


@given(flops=st.floats(1e18, 1e27), factor=st.floats(0.3, 3.0))
def test_the_optimum_is_the_least_loss_at_its_compute(flops: float, factor: float) -> None:
    for law in (BESIROGLU, HOFFMANN):
        parameters, tokens = law.optimum(flops)
        assert 6 * parameters * tokens == pytest.approx(flops)
        assert law.loss(parameters * factor, tokens / factor) >= law.loss(parameters, tokens)


@given(flops=st.floats(1e20, 1e26))
def test_a_smaller_model_reaches_the_same_loss_for_more_compute(flops: float) -> None:
    parameters, tokens = BESIROGLU.optimum(flops)
    for smaller in smaller_for_longer(BESIROGLU, flops):
        if math.isfinite(smaller.tokens):
            assert BESIROGLU.loss(smaller.parameters, smaller.tokens) == pytest.approx(
                BESIROGLU.loss(parameters, tokens)
            )
        assert smaller.more_compute > 1


def test_a_model_that_is_too_small_never_gets_there() -> None:
    assert BESIROGLU.tokens_for(1e6, 1.9) == math.inf


def test_twenty_tokens_for_each_parameter() -> None:
    parameters, tokens = rule_of_thumb(6 * 175e9 * 3.5e12)
    assert (parameters, tokens) == (pytest.approx(175e9), pytest.approx(3.5e12))
