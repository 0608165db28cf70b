from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from shards.schedule import schedule
from trainer.rope import Rope, interpolated_rope, plain_rope, rope_of, rotate, yarn_rope


def _oracle(kind: str, head_width: int, theta: float, factor: float, original: int) -> tuple[torch.Tensor, float]:
    parameters = {
        "rope_type": kind,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": original,
    }
    config = LlamaConfig(
        hidden_size=head_width * 4,
        num_attention_heads=4,
        max_position_embeddings=int(original * factor),
        rope_parameters=parameters,
    )
    return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))


@pytest.mark.parametrize(
    ("head_width", "theta", "factor", "original"),
    [(64, 10_000.0, 4.0, 256), (128, 500_000.0, 8.0, 8192), (48, 10_000.0, 2.0, 1024), (16, 10_000.0, 16.0, 128)],
)
def test_yarn_is_that_of_transformers(head_width: int, theta: float, factor: float, original: int) -> None:
    frequencies, scale = _oracle("yarn", head_width, theta, factor, original)
    rope = yarn_rope(head_width, theta, factor, original)
    torch.testing.assert_close(rope.inverse_frequencies, frequencies, rtol=1e-6, atol=0)
    assert rope.scale == pytest.approx(scale, rel=1e-12)


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.5])
def test_position_interpolation_is_that_of_transformers(factor: float) -> None:
    frequencies, _ = _oracle("linear", 64, 10_000.0, factor, 256)
    torch.testing.assert_close(
        interpolated_rope(64, 10_000.0, factor).inverse_frequencies, frequencies, rtol=1e-6, atol=0
    )


def test_interpolation_is_a_division_of_positions() -> None:
    positions = torch.arange(0, 64, 4)[None]
    fine = interpolated_rope(32, 10_000.0, 4.0).tables(positions)
    coarse = plain_rope(32, 10_000.0).tables(positions // 4)
    for one, other in zip(fine, coarse, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_phase_gets_the_kind_it_names() -> None:
    expected = {
        "none": plain_rope(32, 5e4),
        "theta": plain_rope(32, 5e4),
        "pi": interpolated_rope(32, 5e4, 4.0),
        "yarn": yarn_rope(32, 5e4, 4.0, 128),
    }
    for kind, rope in expected.items():
        resolved = schedule.Rope.model_validate(
            {"kind": kind, "theta": 5e4, "factor": 4.0, "original_context_tokens": 128}
        )
        given_rope = rope_of(resolved, 32)
        assert torch.equal(given_rope.inverse_frequencies, rope.inverse_frequencies)
        assert given_rope.scale == rope.scale
    assert not torch.equal(expected["pi"].inverse_frequencies, expected["yarn"].inverse_frequencies)


def test_frequencies_are_fp32_and_start_at_one() -> None:
    frequencies = plain_rope(64, 500_000.0).inverse_frequencies
    assert frequencies.dtype == torch.float32
    assert frequencies[0] == 1.0
    assert frequencies[-1].item() == pytest.approx(500_000.0 ** (-62 / 64), rel=1e-6)


@given(shift=st.integers(0, 500), distance=st.integers(0, 200), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_scores_depend_on_distance_only(shift: int, distance: int, seed: int) -> None:
    torch.manual_seed(seed)
    query, key = torch.randn(1, 1, 1, 32), torch.randn(1, 1, 1, 32)
    rope = plain_rope(32, 10_000.0)

    def score(at: int) -> float:
        here = rope.tables(torch.tensor([[at]]))
        there = rope.tables(torch.tensor([[at + distance]]))
        return float((rotate(query, there) * rotate(key, here)).sum())

    assert score(shift) == pytest.approx(score(0), abs=2e-3)


def test_rotation_keeps_length_and_dtype() -> None:
    states = torch.randn(2, 8, 3, 16).bfloat16()
    turned = rotate(states, Rope(plain_rope(16, 10_000.0).inverse_frequencies).tables(torch.arange(8).expand(2, 8)))
    assert turned.dtype == torch.bfloat16
    torch.testing.assert_close(turned.float().norm(dim=-1), states.float().norm(dim=-1), rtol=2e-2, atol=0)
    assert not math.isclose(float((turned - states).abs().max()), 0.0)
