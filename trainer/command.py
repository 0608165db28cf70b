"""``headrace train DIR``: checks a finished run, and starts the ranks that train on it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shards.errors import UserError
from shards.lock import LOCK_FILE, locked

_INTERRUPTED = 130

# Ranks end after the step that they are in and write a checkpoint; then they are killed.
_SECONDS_TO_STOP = 180


def train(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a finished run.")],
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Processes to train on; GPUs, or up to 2 on CPU, by default.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove checkpoints and weights, and start again.")] = False,
    stop_after_steps: Annotated[int | None, typer.Option(min=1, help="Save and stop after so many more steps.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Check every byte of the shards first.")] = True,
) -> None:
    """Train on a finished run's shards, going on from the last checkpoint.

    Writes train-log.jsonl (losses per step and domain), checkpoints/ and, at the end, weights/ into DIR. Ctrl-C ends it
    after the step that it is in, with a checkpoint.
    """
    from shards.memory import available_memory, cpus
    from trainer.config import Job

    folder = folder.resolve()
    # Asked for here, so that the message comes at once; held by the first rank, as long as training lasts.
    with locked(folder / LOCK_FILE, str(folder)):
        job = Job.load(folder)
    if job.is_finished and not fresh:
        Console(highlight=False, soft_wrap=True).print(
            f"training in {folder} is finished; weights in {job.weights_path}. Train again with --fresh", markup=False
        )
        return
    cores = cpus()
    gpus = _gpus()
    ranks = ranks or gpus or min(2, cores)
    if gpus and ranks > gpus:
        raise UserError(f"{ranks} ranks do not fit on {gpus} GPU(s)", remedy=f"Give --ranks {gpus} or fewer")
    if not gpus and (free := available_memory()) is not None:
        job.require_memory(ranks, free)
    job.require_disk(shutil.disk_usage(folder).free)
    # A rank must not import what lies in the user's folder under one of our names.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // ranks)))
    arguments = [str(folder), *(["--fresh"] if fresh else []), *([] if verify else ["--no-verify"])]
    if stop_after_steps is not None:
        arguments += ["--stop-after-steps", str(stop_after_steps)]
    if code := _launch(ranks, arguments):
        raise typer.Exit(code)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _launch(ranks: int, arguments: list[str]) -> int:
    """Do what ``torchrun --standalone`` does, in this process, and give an exit code in place of its traceback."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from trainer.stop import LAUNCHER

    # Its reports of a rank's end would bury the rank's own message.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    logging.getLogger("torch.distributed.elastic.agent.server.api").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id="headrace",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        shutdown_timeout=_SECONDS_TO_STOP,
    )
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        elastic_launch(config, sys.executable)("-m", "trainer.worker", *arguments)
    except ChildFailedError as error:
        return _code(error.failures)
    except SignalException as error:
        return 128 + int(error.sigval)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _code(failures: dict[int, Any]) -> int:
    """Give 2 if a rank found a mistake of the user's (the others were only ended for it), 130 if they were stopped."""
    codes = {rank: failure.exitcode for rank, failure in sorted(failures.items())}
    for code in (2, _INTERRUPTED):
        if code in codes.values():
            return code
    for rank, code in codes.items():
        # A rank that failed said why; one that was killed could not. SIGTERM ends the ranks beside it.
        if code < 0 and -code != signal.SIGTERM:
            name = signal.Signals(-code).name
            hint = ": most likely the machine ran out of memory" if -code == signal.SIGKILL else ""
            print(f"error: rank {rank} was ended by {name}{hint}", file=sys.stderr)
    return 1
