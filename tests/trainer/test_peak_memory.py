"""The formula of ``shards/rank_memory.py`` against the tensors that a real step holds at its peak."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from torch.distributed.device_mesh import DeviceMesh

from shards.rank_memory import rank_memory
from shards.training import ModelSettings, TrainSettings
from tests.trainer.peak_bytes import PeakBytes
from trainer.batch import Batch, Placed, StepPlan
from trainer.engine import DataParallelEngine
from trainer.rope import plain_rope

DEEP = ModelSettings(layers=5, width=96, heads=4, kv_heads=2)
WIDE = ModelSettings(layers=2, width=64, heads=2)
CONTEXT, DOCUMENTS = 64, 4


def batch(rows: int, vocabulary: int) -> Batch:
    generator = np.random.default_rng(0)
    count, length = rows * DOCUMENTS, CONTEXT // DOCUMENTS
    row, zeros = np.repeat(np.arange(rows), DOCUMENTS), np.zeros(count, np.int64)
    column = np.tile(np.arange(DOCUMENTS) * length, rows)
    placed = Placed(row, column, zeros, np.arange(count), zeros, np.full(count, length), np.ones(count, np.bool_))
    tokens = generator.integers(0, vocabulary, (rows, CONTEXT))
    return Batch(StepPlan(CONTEXT, ("web",), np.zeros(rows, np.int64), placed), tokens, tokens)


@pytest.mark.parametrize(
    ("model", "vocabulary", "settings"),
    [
        *((DEEP, 128, {"zero": zero}) for zero in range(4)),
        *((WIDE, 4096, {"zero": zero, "precision": "bf16", "bf16": "native"}) for zero in (1, 3)),
        (WIDE, 4096, {"zero": 2, "precision": "bf16", "bf16": "emulated"}),
        (DEEP, 128, {"zero": 3, "precision": "bf16", "bf16": "emulated", "recompute": "selective"}),
        (DEEP, 128, {"zero": 2, "recompute": "selective"}),
        (DEEP, 128, {"zero": 3, "recompute": "blocks", "optimizer": "muon"}),
        (WIDE, 4096, {"zero": 0, "optimizer": "lion", "ema_decay": 0.9, "z_loss": 1e-4}),
        (DEEP, 128, {"zero": 2, "precision": "bf16", "bf16": "native", "recompute": "blocks", "recompute_every": 3}),
    ],
)
def test_the_estimate_is_within_five_percent_of_what_is_counted(
    model: ModelSettings, vocabulary: int, settings: dict[str, Any], mesh: DeviceMesh
) -> None:
    rows = 16
    training = TrainSettings.model_validate({"precision": "fp32", "micro_batch_rows": rows, **settings})
    engine = DataParallelEngine(model, training, vocabulary, ("web",), mesh, emulate_bf16=training.bf16 == "emulated")
    held = [part.tensor for part in engine.state().values()]
    held += [parameter.data for parameter in engine.sharding.model.parameters()] if training.zero == 1 else []
    whole, rope = batch(rows, vocabulary), plain_rope(model.head_width, 1e4)
    gc.collect()
    with PeakBytes(*held) as counted:
        engine.accumulate([whole, whole], 2 * whole.tokens.size, rope)
        engine.step(1e-3)
    memory = rank_memory(model, training, vocabulary, [CONTEXT], 1)
    estimated = memory.total - memory.process - memory.snapshot
    assert estimated == pytest.approx(counted.peak, rel=0.05)
