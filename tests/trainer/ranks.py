"""Trainings one after another on ranks that start once: ``torchrun -m tests.trainer.ranks FOLDER[:STEPS,...] ...``.

STEPS are the steps after which to stop and build everything anew from the checkpoint; the last part goes to the end.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from trainer.config import Job
from trainer.loop import Trainer


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for argument in sys.argv[1:]:
        folder, _, stops = argument.partition(":")
        for steps in [*map(int, filter(None, stops.split(","))), None]:
            Trainer(Job.load(Path(folder)), mesh, lambda: 0.0).run(steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
