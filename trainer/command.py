"""``headrace train DIR``: checks a finished run and starts the ranks that train on it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from shards.errors import UserError
from shards.lock import LOCK_FILE, locked


def train(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a finished run.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="What a new branch changes ahead: phases.anneal.tokens=1000000, max_epochs.web=8."
        ),
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Train a branch of the schedule; with changes, make it first.")
    ] = None,
    of: Annotated[str | None, typer.Option("--of", metavar="BRANCH", help="Branch from this branch.")] = None,
    at_step: Annotated[
        int | None, typer.Option(min=1, help="Branch from the checkpoint of this step; by default the newest.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Processes to train on; by default the number of GPUs, or up to 2 on CPU.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove checkpoints and weights, and start again.")] = False,
    stop_after_steps: Annotated[int | None, typer.Option(min=1, help="Save and stop after this many steps.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Check every byte of the shards first.")] = True,
) -> None:
    """Train on a finished run's shards, resuming from the last checkpoint.

    Writes train-log.jsonl (losses per step and domain), checkpoints/ and, at the end, weights/ into DIR. Ctrl-C stops
    it after the next step, with a checkpoint.

    A branch goes its own way from a checkpoint on: phases still ahead may change, end, or be added. It has its own log,
    checkpoints and weights, in DIR/branches/NAME.
    """
    from shards.memory import available_memory, cpus, default_ranks
    from trainer.branches import branch_folder, make_branch
    from trainer.config import Job
    from trainer.launch import launch, rank_environment

    folder = folder.resolve()
    # Taken here, so that an error comes at once; during training, the first rank holds it.
    with locked(folder / LOCK_FILE, str(folder)):
        if branch is None and (changes or of or at_step):
            raise UserError("changes make a branch, which needs a name", remedy="Add --branch NAME")
        if branch is not None and make_branch(folder, branch, changes or (), of=of, step=at_step):
            _say(f"made branch {branch} in {branch_folder(folder, branch)}")
        job = Job.load(folder, branch)
    if job.is_finished and not fresh:
        _say(f"training in {job.output} is finished; weights are in {job.weights_path}. Train again with --fresh")
        return
    cores = cpus()
    gpus = _gpus()
    ranks = ranks or gpus or default_ranks()
    if gpus and ranks > gpus:
        raise UserError(f"{ranks} ranks do not fit on {gpus} GPU(s)", remedy=f"Use --ranks {gpus} or fewer")
    if not gpus and (free := available_memory()) is not None:
        job.require_memory(ranks, free)
    job.require_disk(shutil.disk_usage(folder).free)
    environment, note = rank_environment(ranks, cores, os.environ)
    os.environ.update(environment)
    if note is not None:
        _say(f"note: {note}")
    arguments = [str(folder), *(["--branch", branch] if branch else [])]
    arguments += [*(["--fresh"] if fresh else []), *([] if verify else ["--no-verify"])]
    if stop_after_steps is not None:
        arguments += ["--stop-after-steps", str(stop_after_steps)]
    if code := launch(ranks, arguments):
        raise typer.Exit(code)


def _say(text: str) -> None:
    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
