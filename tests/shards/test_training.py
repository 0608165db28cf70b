from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.errors import UserError
from shards.training import DEFAULT_MICRO_BATCH_TOKENS, ModelSettings, TrainSettings, parse_settings


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"width": 30, "heads": 4}, "even multiple of heads"),
        ({"width": 12, "heads": 4}, "even multiple of heads"),
        ({"heads": 4, "kv_heads": 3}, "multiple of kv_heads"),
        ({"layer": 2}, "Did you mean 'layers'"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_settings(ModelSettings, table, "here")


@pytest.mark.parametrize(
    ("zero", "precision", "per_rank"),
    [
        (0, "fp32", {1: 20.0, 2: 20.0}),
        (1, "bf16", {1: 18.0, 2: 12.0, 4: 9.0}),
        (2, "bf16", {1: 18.0, 2: 10.0, 4: 6.0}),
        (3, "bf16", {1: 16.0, 2: 8.0, 4: 4.0}),
    ],
)
def test_bytes_per_parameter(zero: Any, precision: Any, per_rank: dict[int, float]) -> None:
    settings = TrainSettings(zero=zero, precision=precision)
    assert {ranks: settings.bytes_per_parameter(ranks) for ranks in per_rank} == per_rank


def test_micro_batches_hold_tokens_or_rows() -> None:
    by_tokens = TrainSettings(micro_batch_tokens=100)
    assert [by_tokens.rows_per_micro_batch(context) for context in (32, 100, 101)] == [3, 1, 1]
    assert TrainSettings(micro_batch_rows=5).rows_per_micro_batch(1 << 20) == 5


@pytest.mark.parametrize("given", [{}, {"micro_batch_rows": 3}, {"micro_batch_tokens": 64}])
def test_settings_written_whole_are_read_again(given: dict[str, int]) -> None:
    settings = TrainSettings.model_validate(given)
    assert parse_settings(TrainSettings, json.loads(settings.model_dump_json()), "here") == settings
    model = ModelSettings(kv_heads=2)
    assert parse_settings(ModelSettings, json.loads(model.model_dump_json()), "here") == model


@given(
    layers=st.integers(1, 4),
    heads=st.sampled_from([1, 2, 4]),
    shared=st.sampled_from([1, 2, 4]),
    head_width=st.sampled_from([2, 6]),
    vocabulary=st.integers(1, 999),
    tied=st.booleans(),
)
def test_parameters_are_those_of_the_matrices(
    layers: int, heads: int, shared: int, head_width: int, vocabulary: int, tied: bool
) -> None:
    keys = max(1, heads // shared)
    width = heads * head_width
    model = ModelSettings(layers=layers, width=width, heads=heads, kv_heads=keys, tie_embeddings=tied)
    attention = width * width + 2 * width * keys * head_width + width * width
    block = attention + 3 * width * model.hidden_width + 2 * width
    embeddings = vocabulary * width * (1 if tied else 2)
    assert model.parameters(vocabulary) == layers * block + width + embeddings


def test_widths_left_out_follow_from_the_model() -> None:
    model = ModelSettings(width=192, heads=6)
    assert (model.head_width, model.key_value_heads, model.hidden_width) == (32, 6, 512)
    # 8/3 of the width, rounded up to a multiple of 64.
    assert ModelSettings(width=194, heads=1).hidden_width == 576
    assert ModelSettings(ffn_width=7).hidden_width == 7


def test_a_micro_batch_left_out_is_the_default() -> None:
    assert TrainSettings().rows_per_micro_batch(64) == DEFAULT_MICRO_BATCH_TOKENS // 64


@pytest.mark.parametrize("setting", ["native", "emulated"])
def test_a_mode_of_bf16_without_bf16_is_refused(setting: str) -> None:
    table = {"precision": "fp32", "bf16": setting}
    with pytest.raises(UserError, match='no effect with precision = "fp32"') as caught:
        parse_settings(TrainSettings, table, "here")
    assert caught.value.place == "here, key bf16"
    assert parse_settings(TrainSettings, table | {"bf16": "auto"}, "here").bf16 == "auto"


@pytest.mark.parametrize(
    ("table", "what", "place"),
    [
        ({"zero": 4}, "found 4", "here, key zero"),
        ({"beta1": 1.0}, "less than 1", "here, key beta1"),
        ({"learing_rate": 1.0}, "unknown key 'learing_rate'", "here"),
        ({"micro_batch_token": 4}, "Did you mean 'micro_batch_tokens'", "here"),
        ({"micro_batch_tokens": 8, "micro_batch_rows": 2}, "not both", "here"),
        ([], "valid dictionary", "here"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(table: Any, what: str, place: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_settings(TrainSettings, table, "here")
    assert what in str(caught.value)
    assert caught.value.place == place
