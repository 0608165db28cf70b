"""One rank of a training, started by ``headrace train`` or by ``torchrun --nproc-per-node N -m trainer DIR``.

Exit codes: 0 for success, 1 for a failure, 2 for a user error, which rank 0 prints, 3 if it cannot join the other
ranks, 130 if a signal stopped it, after the next step and with a checkpoint.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from shards.errors import UserError
from shards.lock import LOCK_FILE, locked
from shards.reader import ShardSet
from trainer.collectives import on_each
from trainer.config import Job
from trainer.export import export, transformers_config
from trainer.launch import INTERRUPTED, RENDEZVOUS_FAILED
from trainer.loop import DivergedError, Trainer
from trainer.stage import choose_stage, free_per_rank
from trainer.stop import LAUNCHER, Stop


class RendezvousFailedError(RuntimeError):
    """This rank cannot join the others."""


def main(arguments: list[str] | None = None) -> int:
    """Train in the folder given by the arguments, and return the exit code."""
    parser = argparse.ArgumentParser(prog="trainer", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--branch", default=None, help="train this branch, which headrace train has made")
    parser.add_argument("--fresh", action="store_true", help="remove checkpoints and start again")
    parser.add_argument("--stop-after-steps", type=int, default=None, help="save and stop after this many steps")
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not check the shards' bytes first")
    options = parser.parse_args(arguments)
    first = os.environ.get("RANK", "0") == "0"
    folder, stop = options.folder, Stop()
    # Held by a rank, not by the launcher: ranks outlive a killed launcher by a step and a checkpoint.
    holding = locked(folder / LOCK_FILE, str(folder)) if first else nullcontext()
    try:
        with holding, _ranks() as mesh:
            # Read after all ranks have joined, and so under the lock: curation cannot be changing it.
            job = Job.load(folder, options.branch)
            if options.verify:
                _verify(job, time.perf_counter)
            interrupted = train(job, mesh, stop, fresh=options.fresh, stop_after_steps=options.stop_after_steps)
    except UserError as error:
        if first:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    except DivergedError as error:
        if first:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    except RendezvousFailedError as error:
        get_error_handler().record_exception(error)
        if first and LAUNCHER not in os.environ:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return RENDEZVOUS_FAILED
    except RuntimeError:
        # A collective failed because the signal ended another rank, which was not deferring it at that moment.
        if not stop():
            raise
        return INTERRUPTED
    return INTERRUPTED if interrupted else 0


def train(job: Job, mesh: DeviceMesh, stop: Stop, *, fresh: bool = False, stop_after_steps: int | None = None) -> bool:
    """Train on this rank to the end, or for some steps, and export the weights at the end.

    Returns:
        True if a signal stopped training before its end.
    """
    ranks = mesh.size()
    chosen = choose_stage(job, ranks, free_per_rank(torch.device(mesh.device_type)), mesh.device_type)
    job = chosen.job
    trainer = Trainer(job, mesh, time.perf_counter, fresh=fresh)
    for line in chosen.lines:
        trainer.screen.say(line)
    parameters = job.model.parameters(job.vocabulary)
    each = job.training.bytes_per_parameter(ranks)
    trainer.screen.say(
        f"{parameters:,} parameters, {job.training.precision} with ZeRO {job.training.zero} on {ranks} rank(s): "
        f"{each:.1f} bytes per parameter on each rank, {each * parameters / 2**20:,.0f} MiB"
    )
    if trainer.bf16 is not None:
        trainer.screen.say(trainer.bf16.line)
    # All ranks begin to defer signals together: one that does not yet would be ended, while the others wait for it.
    dist.barrier()
    with stop.deferred():
        outcome = trainer.run(stop_after_steps, stop)
    if not outcome.finished:
        branch = "" if job.branch is None else f" --branch {job.branch}"
        trainer.screen.say(f"stopped after step {outcome.step}; resume with: headrace train {job.folder}{branch}")
        return outcome.interrupted
    last = job.schedule.phases[-1]
    end_of_text = ShardSet.open(job.folder / "shards").catalog.end_of_text
    config = transformers_config(job.model, job.vocabulary, last.rope, last.context_tokens, end_of_text)
    writes = mesh.get_rank() == 0
    if writes:
        job.remove_weights()
    export(trainer.engine.shapes, trainer.engine.weights(), config, job.weights_path, writes=writes)
    if writes:
        job.mark_finished(outcome.step, trainer.bf16_mode)
    trainer.screen.say(f"finished: {outcome.step} steps; weights in {job.weights_path}")
    return False


def _verify(job: Job, clock: Callable[[], float]) -> None:
    """Check every byte of the shards before the first step; each rank reads its part.

    Raises:
        IncompleteError: on all ranks, if one of them finds a file that is not what was written.
    """
    begun = clock()
    shards = ShardSet.open(job.folder / "shards")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    size = sum(on_each(lambda: shards.verify(rank, ranks)))
    seconds = clock() - begun
    if rank == 0:
        speed = f" ({size / seconds / 1e9:.1f} GB/s)" if seconds > 0 else ""
        print(f"verified {size / 1e6:,.1f} MB of shards in {seconds:.1f} s{speed}", flush=True)


@contextmanager
def _ranks() -> Iterator[DeviceMesh]:
    """Join the other ranks that torchrun started; without torchrun, be the only one."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, value)
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    except (RuntimeError, ValueError) as error:
        raise _rendezvous_failed(error) from error
    yield init_device_mesh("cuda" if cuda else "cpu", (dist.get_world_size(),))
    # Not after an error: other ranks may be waiting in a collective, and are ended only once this process has ended.
    dist.destroy_process_group()


def _rendezvous_failed(error: Exception) -> RendezvousFailedError:
    # torch appends its own trace, and gloo begins with a location in its source.
    said = re.sub(r"^\[enforce fail at [^\]]*\][^.]*\. ", "", str(error).strip().partition("\n")[0])
    remedy = "Check that MASTER_ADDR and MASTER_PORT lead to rank 0, and that GLOO_SOCKET_IFNAME is an interface here"
    if "EADDRINUSE" in said or "address already in use" in said.lower():
        remedy = "Another program uses this port: choose another with MASTER_PORT"
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    return RendezvousFailedError(f"rank {os.environ['RANK']} cannot join the other ranks at {where} ({said}). {remedy}")
