"""A training step beside a bare PyTorch loop, and what recomputing activations saves and costs.

``python tests/bench/bench_training.py [--steps 30]``: CPU-seconds of this process with one thread, interleaved,
medians; bytes counted as tensors come and go. One rank, so that collectives are called but send nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

sys.path.insert(0, str(Path(__file__).parents[2]))

from shards.training import ModelSettings, TrainSettings
from tests.trainer.peak_bytes import PeakBytes
from trainer.attention import lay_out
from trainer.batch import Batch, Placed, StepPlan
from trainer.bf16 import has_bf16
from trainer.engine import DataParallelEngine
from trainer.model import Decoder, initial_weight
from trainer.rope import plain_rope

CPU = torch.device("cpu")
MODEL = ModelSettings(layers=6, width=256, heads=4)
DEEP = ModelSettings(layers=16, width=192, heads=4)
VOCABULARY, CONTEXT, ROWS, DOCUMENTS, MICRO_BATCHES = 4_096, 512, 4, 2, 2
ROPE = plain_rope(MODEL.head_width, 1e4)


def batch(seed: int) -> Batch:
    """Return rows of two documents each."""
    generator = np.random.default_rng(seed)
    count, length = ROWS * DOCUMENTS, CONTEXT // DOCUMENTS
    row, zeros = np.repeat(np.arange(ROWS), DOCUMENTS), np.zeros(count, np.int64)
    column = np.tile(np.arange(DOCUMENTS) * length, ROWS)
    placed = Placed(row, column, zeros, np.arange(count), zeros, np.full(count, length), np.ones(count, np.bool_))
    tokens = generator.integers(0, VOCABULARY, (ROWS, CONTEXT))
    return Batch(StepPlan(CONTEXT, ("web",), np.zeros(ROWS, np.int64), placed), tokens, np.roll(tokens, -1, 1))


def engine_step(mesh: DeviceMesh, training: TrainSettings, model: ModelSettings = MODEL) -> Callable[[], None]:
    """Return a step of the engine, as the loop calls it."""
    engine = DataParallelEngine(model, training, VOCABULARY, ("web",), mesh)
    batches, rope = [batch(seed) for seed in range(MICRO_BATCHES)], plain_rope(model.head_width, 1e4)

    def step() -> None:
        losses = engine.accumulate(batches, MICRO_BATCHES * ROWS * CONTEXT, rope)
        update = engine.step(1e-3)
        losses.get()
        update.get()

    return step


def bare_step(dtype: torch.dtype) -> Callable[[], None]:
    """Return the same step in plain PyTorch: fp32 weights, autocast by a copy, fused AdamW, clipping."""
    master = Decoder(MODEL, VOCABULARY)
    with torch.no_grad():
        for name, parameter in master.named_parameters():
            parameter.copy_(initial_weight(name, parameter.shape, MODEL, 0))
    model = master if dtype == torch.float32 else Decoder(MODEL, VOCABULARY).to(dtype)
    adam = torch.optim.AdamW(master.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    batches = [batch(seed) for seed in range(MICRO_BATCHES)]

    def step() -> None:
        if model is not master:
            with torch.no_grad():
                for copy, weight in zip(model.parameters(), master.parameters(), strict=True):
                    copy.copy_(weight)
        for one in batches:
            layout = lay_out(torch.from_numpy(one.document), "documents", CPU)
            tokens, positions, targets = map(torch.from_numpy, (one.tokens, one.positions, one.targets))
            loss = model(tokens, positions, layout, ROPE, targets).sum() / (MICRO_BATCHES * ROWS * CONTEXT)
            loss.backward()
            if model is not master:
                for copy, weight in zip(model.parameters(), master.parameters(), strict=True):
                    gradient, copy.grad = copy.grad.float(), None
                    weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
        torch.nn.utils.clip_grad_norm_(master.parameters(), 1.0)
        adam.step()
        adam.zero_grad()

    return step


def medians(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return CPU-seconds by name, measured in turn."""
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name, step in steps.items():
            begun = time.process_time()
            step()
            if number >= 2:
                spent[name].append(time.process_time() - begun)
    return {name: statistics.median(times) for name, times in spent.items()}


def beside_a_bare_loop(mesh: DeviceMesh, rounds: int) -> None:
    """Print the step of every stage over that of the bare loop."""
    for precision in ("fp32", *(["bf16"] if has_bf16(CPU) else [])):
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        steps = {"bare": bare_step(dtype)}
        for zero in (0, 1, 2, 3):
            settings = {"zero": zero, "precision": precision, "micro_batch_rows": ROWS}
            steps[f"zero {zero}"] = engine_step(mesh, TrainSettings.model_validate(settings))
        found = medians(steps, rounds)
        shown = "  ".join(f"{name} {seconds:.3f} ({seconds / found['bare']:.3f})" for name, seconds in found.items())
        print(f"{precision}: CPU-s of a step (over the bare loop): {shown}", flush=True)


def recomputing(mesh: DeviceMesh, rounds: int) -> None:
    """Print peak bytes and CPU-seconds of every way to recompute."""
    root = round(DEEP.layers**0.5)
    ways = {
        "none": {},
        "selective": {"recompute": "selective"},
        "blocks": {"recompute": "blocks"},
        f"every {root} blocks": {"recompute": "blocks", "recompute_every": root},
    }
    steps, peaks = {}, {}
    for name, way in ways.items():
        training = TrainSettings.model_validate({"zero": 2, "precision": "fp32", "micro_batch_rows": ROWS, **way})
        engine = DataParallelEngine(DEEP, training, VOCABULARY, ("web",), mesh)
        held = [part.tensor for part in engine.state().values()]
        state = sum(tensor.untyped_storage().nbytes() for tensor in held)
        with PeakBytes(*held) as counted:
            engine.accumulate([batch(0)], ROWS * CONTEXT, plain_rope(DEEP.head_width, 1e4))
        peaks[name] = counted.peak - state
        steps[name] = engine_step(mesh, training, DEEP)
    found = medians(steps, rounds)
    for name, seconds in found.items():
        mib, memory, more = peaks[name] / 2**20, peaks[name] / peaks["none"], seconds / found["none"]
        print(f"recompute {name}: {mib:.0f} MiB beside the state ({memory:.2f}), {seconds:.3f} CPU-s ({more:.2f})")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    rounds = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    beside_a_bare_loop(mesh, rounds)
    recomputing(mesh, max(3, rounds // 5))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
