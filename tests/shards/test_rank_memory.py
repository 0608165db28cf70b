"""The formula's own logic; tests/trainer/test_peak_memory.py holds it to what a real step allocates."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.rank_memory import MAX_LOGITS, PROCESS_BYTES, rank_bytes, rank_memory
from shards.training import ModelSettings, TrainSettings

MODEL = ModelSettings(layers=3, width=64, heads=2)


def memory(
    ranks: int = 1, model: ModelSettings = MODEL, vocabulary: int = 1_000, device: Any = "cpu", **settings: Any
) -> Any:
    training = TrainSettings.model_validate({"precision": "fp32", "micro_batch_rows": 2, **settings})
    return rank_memory(model, training, vocabulary, [40, 100, 60], ranks, device)


def test_the_longest_context_counts_and_the_state_is_shared() -> None:
    tokens, parameters = 2 * 100, MODEL.parameters(1_000)
    found = memory(ranks=2)
    assert (found.masters, found.gradients, found.optimizer) == (2 * parameters, 2 * parameters, 4 * parameters)
    assert found.activations == tokens * 4 * (3 * (4 * 64 + 2 + 5 * 64 + 2 * 64 + 4 * 192) + 3 * 64)
    assert found.working == tokens * 1_000 * 12
    assert found.total == rank_bytes(MODEL, TrainSettings(precision="fp32", micro_batch_rows=2), 1_000, [100], 2)
    assert found.total - PROCESS_BYTES == sum(
        (
            found.masters,
            found.gradients,
            found.optimizer,
            found.compute,
            found.activations,
            found.working,
            found.snapshot,
        )
    )


@given(ranks=st.sampled_from([1, 2, 4, 64]), recompute=st.sampled_from(["none", "selective", "blocks"]))
def test_a_higher_stage_never_needs_more_on_many_ranks(ranks: int, recompute: str) -> None:
    big = ModelSettings(layers=12, width=768, heads=12)
    totals = [memory(ranks, big, zero=zero, recompute=recompute).total for zero in range(4)]
    # Stage 1 copies a bucket to send it, which only a single rank notices.
    assert ranks == 1 or totals == sorted(totals, reverse=True)


def test_recomputing_keeps_less_and_sqrt_of_the_layers_keeps_least() -> None:
    deep = ModelSettings(layers=64, width=64, heads=2)
    kept = {every: memory(1, deep, recompute="blocks", recompute_every=every).total for every in (1, 2, 4, 8, 16, 64)}
    none, selective = memory(1, deep).total, memory(1, deep, recompute="selective").total
    assert none > selective > kept[1]
    assert kept[64] > kept[8]


def test_replicas_do_not_divide_the_state() -> None:
    assert memory(8, zero=3, shard_ranks=2).masters == memory(2, zero=3).masters


def test_emulation_needs_more_than_the_instructions_do() -> None:
    native = memory(precision="bf16", bf16="native").total
    assert memory(precision="bf16", bf16="emulated").total > native
    assert memory(precision="bf16").total == memory(precision="bf16", bf16="emulated").total


def test_kernels_of_a_gpu_keep_less() -> None:
    assert memory(device="cuda").activations < memory(device="cpu").activations


def test_logits_beyond_what_is_held_at_once_cost_nothing_more() -> None:
    model = ModelSettings(layers=1, width=2, heads=1, ffn_width=1)
    sizes = [
        rank_memory(model, TrainSettings(micro_batch_rows=rows, precision="fp32"), 1 << 16, [1 << 10], 1)
        for rows in (1, 2, 4)
    ]
    assert MAX_LOGITS == 1 << 26
    assert len({size.working for size in sizes}) == 1
    first, second, third = (size.activations for size in sizes)
    assert (second - first) * 2 == third - second > 0
    assert all(a.total < b.total for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_state_is_what_the_settings_say_per_parameter(zero: Any) -> None:
    training = TrainSettings(zero=zero, precision="bf16")
    found = rank_memory(MODEL, training, 1_000, [64], 4)
    state = found.masters + found.gradients + found.optimizer + (found.compute if zero < 3 else 0)
    assert state == pytest.approx(training.bytes_per_parameter(4) * MODEL.parameters(1_000), rel=1e-4)


def test_an_asynchronous_checkpoint_copies_what_a_rank_writes() -> None:
    written = 12 * MODEL.parameters(1_000)
    for zero in (0, 3):
        assert memory(4, zero=zero).snapshot == pytest.approx(written / 4, abs=8)
    assert memory(4, zero=3, shard_ranks=2).snapshot == pytest.approx(written / 4, abs=8)
    assert memory(4, asynchronous_checkpoints=False).snapshot == memory(4, device="cuda").snapshot == 0
