"""Formulas alone; tests/integration/test_engine_ranks.py compares them with the collectives of real steps."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.rank_memory import BUCKET_ELEMENTS
from shards.traffic import Traffic, buckets, padded, sent_bytes, step_traffic, units_of
from shards.training import ModelSettings, TrainSettings

MODEL = ModelSettings(layers=3, width=64, heads=4, kv_heads=2)


def traffic(zero: Any, ranks: int = 4, micro_batches: int = 3, **settings: Any) -> dict[Any, Traffic]:
    training = TrainSettings.model_validate({"zero": zero, **settings})
    return step_traffic(MODEL, training, 1_024, ranks, micro_batches, 2)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_units_hold_every_parameter_once(tied: bool, qk_norm: bool) -> None:
    model = MODEL.model_copy(update={"tie_embeddings": tied, "qk_norm": qk_norm})
    units = units_of(model, 1_000)
    assert len(units) == model.layers + 1
    assert sum(math.prod(shape) for unit in units for shape in unit) == model.parameters(1_000)


def test_stages_send_what_the_paper_says() -> None:
    parameters = MODEL.parameters(1_024)
    told = 8 * (2 + 2 * 2)
    assert traffic(0)["all_reduce"] == Traffic(5, 4 * parameters + told)
    assert traffic(1)["reduce_scatter"] == Traffic(1, 4 * parameters)
    assert traffic(1)["all_gather"] == Traffic(1, 2 * parameters)
    assert traffic(2)["reduce_scatter"] == Traffic(12, 3 * 4 * parameters)
    assert traffic(3)["all_gather"].size == 3 * 2 * (parameters + 3 * MODEL.block_parameters)
    # With one micro-batch, 1 and 2 send less than 0, by what bf16 saves, and 3 half as much again as 2 at most.
    sent = [sent_bytes(traffic(zero, micro_batches=1), 4) for zero in range(4)]
    assert sent[1] == pytest.approx(sent[2]) == pytest.approx(0.75 * sent[0], rel=1e-3)
    assert sent[2] < sent[3] < 1.5 * sent[2]


def test_reducing_once_sends_what_one_micro_batch_does() -> None:
    assert traffic(2, reduce_once=True) == traffic(2, micro_batches=1)


def test_replicas_add_up_their_shares() -> None:
    shared = traffic(3, 8, shard_ranks=4)
    assert shared["all_gather"] == traffic(3, 4)["all_gather"]
    assert shared["all_reduce"].size - traffic(3, 4)["all_reduce"].size == 3 * MODEL.parameters(1_024)


@given(rows=st.integers(1, 100), columns=st.integers(1, 9), ranks=st.integers(1, 9))
def test_padding_makes_shares_equal_and_no_larger_than_needed(rows: int, columns: int, ranks: int) -> None:
    size = padded((rows, columns), ranks)
    assert size % (ranks * columns) == 0
    assert 0 <= size - rows * columns < ranks * columns


def test_a_large_model_is_sent_in_buckets() -> None:
    large = ModelSettings.model_validate({"preset": "1b"})
    parameters = large.parameters(32_000)
    assert parameters / (2 * BUCKET_ELEMENTS) < buckets(large, 32_000) <= parameters / BUCKET_ELEMENTS + 1
