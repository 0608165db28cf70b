"""One rank of a training: ``torchrun --nproc-per-node N -m trainer.worker DIR``. ``headrace train`` starts these.

Exit codes: 0 for success, 1 for a failure, 2 for a mistake of the user's, which rank 0 prints.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shards.errors import UserError
from shards.reader import ShardSet
from trainer.config import Job
from trainer.export import export, transformers_config
from trainer.loop import DivergedError, Trainer

LOCK_NAME = "train.lock"


def main(arguments: list[str] | None = None) -> int:
    """Train in the folder that the arguments name, and give the exit code."""
    parser = argparse.ArgumentParser(prog="trainer.worker", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fresh", action="store_true", help="remove checkpoints and start again")
    parser.add_argument("--stop-after-steps", type=int, default=None, help="save and stop after so many steps")
    options = parser.parse_args(arguments)
    first = os.environ.get("RANK", "0") == "0"
    try:
        job = Job.load(options.folder)
        with _lock(job.folder) if first else _nothing(), _ranks() as mesh:
            train(job, mesh, fresh=options.fresh, stop_after_steps=options.stop_after_steps)
    except UserError as error:
        if first:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    except DivergedError as error:
        if first:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def train(job: Job, mesh: DeviceMesh, *, fresh: bool = False, stop_after_steps: int | None = None) -> None:
    """Train on this rank to the end, or some steps further, and export the weights at the end."""
    trainer = Trainer(job, mesh, time.perf_counter, fresh=fresh)
    parameters = job.model.parameters(job.vocabulary)
    ranks = mesh.size()
    each = job.training.bytes_per_parameter(ranks)
    trainer.screen.say(
        f"{parameters:,} parameters, ZeRO {job.training.zero} on {ranks} rank(s), {job.training.precision}: "
        f"{each:.1f} bytes a parameter on each rank, {each * parameters / 2**20:,.0f} MiB"
    )
    outcome = trainer.run(stop_after_steps, _parent_watch())
    if not outcome.finished:
        trainer.screen.say(f"stopped after step {outcome.step}; the same command goes on from there")
        return
    last = job.schedule.stages[-1]
    end_of_text = ShardSet.open(job.folder / "shards").catalog.end_of_text
    config = transformers_config(job.model, job.vocabulary, last.rope, last.context_tokens, end_of_text)
    writes = mesh.get_rank() == 0
    if writes:
        job.remove_weights()
    export(trainer.sharding, config, job.weights_path, writes=writes)
    if writes:
        job.mark_finished(outcome.step)
    trainer.screen.say(f"finished: {outcome.step} steps; weights in {job.weights_path}")


@contextmanager
def _ranks() -> Iterator[DeviceMesh]:
    """Join the other ranks that torchrun started; alone without it."""
    # Ctrl-C reaches the whole process group; whoever started the ranks ends them, without a traceback from each.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, value)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    yield init_device_mesh("cuda" if cuda else "cpu", (dist.get_world_size(),))
    # Not after an error: the other ranks may be waiting in a collective, and this one has to end for them to be ended.
    dist.destroy_process_group()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two trainings that wrote the same checkpoints would destroy both."""
    with (folder / LOCK_NAME).open("w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another training is running here", place=str(folder), remedy="Wait for it, or end it"
            ) from None
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield


class _OrphanedError(SystemExit):
    """Whoever started this rank is gone."""


def _parent_watch() -> Callable[[], None]:
    parent = os.getppid()

    def check() -> None:
        if os.getppid() != parent:
            raise _OrphanedError(1)

    return check


if __name__ == "__main__":
    if code := main():
        # Without the interpreter's own end: the other ranks' connections are still open, and closing them can abort.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
