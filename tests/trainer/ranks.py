"""Trainings one after another on ranks that start once: ``torchrun -m tests.trainer.ranks FOLDER[:STEPS,...] ...``.

STEPS are the steps after which to stop and build everything anew from the checkpoint; the last part goes to the end,
unless an exclamation mark follows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from trainer.config import Job
from trainer.loop import Trainer


def write_held_bytes(trainer: Trainer, folder: Path) -> None:
    """Count the bytes of masters and moments on all ranks together."""
    tensors = [part.tensor for part in trainer.engine.state().values()]
    held = torch.tensor(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    dist.all_reduce(held)
    if dist.get_rank() == 0:
        (folder / "held-bytes").write_text(str(held.item()))


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for argument in sys.argv[1:]:
        folder, _, stops = argument.partition(":")
        parts: list[int | None] = [int(steps) for steps in stops.rstrip("!").split(",") if steps]
        for steps in parts if stops.endswith("!") else [*parts, None]:
            trainer = Trainer(Job.load(Path(folder)), mesh, lambda: 0.0)
            trainer.run(steps)
        write_held_bytes(trainer, Path(folder))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # As trainer/__main__.py ends: the interpreter's own end can abort over threads of closed connections.
    sys.stdout.flush()
    os._exit(0)
