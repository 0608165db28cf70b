"""Engines on several ranks, one case after another: ``torchrun -m tests.trainer.engine_ranks OUT`` with cases as JSON.

A case is a table of training settings (and ``model``, settings of the model). For each, rank 0 writes losses, norms and
the sum and norm of every weight after three steps.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shards.training import ModelSettings, TrainSettings
from tests.trainer.collective_bytes import CollectiveBytes
from tests.trainer.synthetic_batches import DOMAINS, VOCABULARY, micro_batches_of, step_rows
from trainer.engine import DataParallelEngine
from trainer.micro_batch import mean_loss
from trainer.rope import plain_rope

MODEL = {"layers": 2, "width": 24, "heads": 2, "ffn_width": 40}
RATES = (1e-2, 5e-3, 1e-3)
ROPE = plain_rope(12, 1e4)


def engine_of(mesh: DeviceMesh, case: dict[str, Any]) -> DataParallelEngine:
    """Build the engine of a case."""
    settings = {"precision": "fp32", "seed": 5, "clip_norm": 0.5, **case}
    model = ModelSettings.model_validate(MODEL | settings.pop("model", {}))
    return DataParallelEngine(model, TrainSettings.model_validate(settings), VOCABULARY, DOMAINS, mesh)


def results(engine: DataParallelEngine, steps: range = range(3)) -> dict[str, Any]:
    """Train and return what happened."""
    sent = []
    for step in steps:
        batches = micro_batches_of(step, engine.data_rank, engine.data_ranks)
        # Those of the last step stay.
        with CollectiveBytes() as counted:
            losses = engine.accumulate(batches, step_rows(step).plan.targets, ROPE)
            sent.append((losses, engine.step(RATES[step])))
    weights = {name: whole.flatten().tolist() for name, whole in zip(engine.shapes, engine.weights(), strict=True)}
    return {
        "losses": [mean_loss(losses.get()) for losses, _ in sent],
        "norms": [update.get().norm for _, update in sent],
        "weights": weights,
        "collectives": counted.found,
        "micro_batches": len(batches),
    }


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found = {name: results(engine_of(mesh, case)) for name, case in json.loads(os.environ["CASES"]).items()}
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
