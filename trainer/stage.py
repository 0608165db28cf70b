"""Which ZeRO stage a training takes, and whether its memory suffices, before anything is built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch

from shards.errors import UserError
from shards.memory import available_memory
from shards.rank_memory import Device, rank_memory
from trainer.collectives import on_each
from trainer.config import Job

_STAGES: Final = (0, 1, 2, 3)


@dataclass(frozen=True)
class Chosen:
    """The job with its stage, and what there is to say of it: a line for every stage that was considered."""

    job: Job
    lines: tuple[str, ...]


def free_per_rank(device: torch.device, given: Mapping[str, str] = os.environ) -> int | None:
    """Return the bytes that every rank can have, the same on all of them; None if that is unknown.

    On CPU the ranks of a machine share its memory; a GPU belongs to one rank.
    """
    if device.type == "cuda":
        mine: int | None = torch.cuda.mem_get_info(device)[0]
    else:
        free = available_memory()
        mine = None if free is None else free // int(given.get("LOCAL_WORLD_SIZE", "1"))
    known = [free for free in on_each(lambda: mine) if free is not None]
    return min(known) if known else None


def choose_stage(job: Job, ranks: int, free: int | None, device: str) -> Chosen:
    """Choose the smallest ZeRO stage that fits where the settings leave it open, and check the memory of the stage.

    What is estimated beyond the model's state depends on kernels, so a stage that only then is too large is warned
    of; one whose state alone is too large is refused.

    Args:
        job: what to train.
        ranks: number of processes.
        free: bytes that every rank can have; None if that is unknown.
        device: type of the device.

    Raises:
        UserError: if the state does not fit.
    """
    kind: Device = "cuda" if device == "cuda" else "cpu"
    contexts = [phase.context_tokens for phase in job.schedule.phases]
    considered = _STAGES if job.training.zero == "auto" else (job.training.zero,)
    lines = []
    for stage in considered:
        training = job.training.model_copy(update={"zero": stage})
        memory = rank_memory(job.model, training, job.vocabulary, contexts, ranks, kind)
        fits = free is None or memory.total <= free
        where = "where free memory is unknown" if free is None else f"in the {free / 2**30:.1f} GiB that are free"
        verb = "fits" if fits else "does not fit"
        lines.append(f"zero = {stage}: {memory.total / 2**30:.1f} GiB on each rank, {verb} {where}")
        if fits:
            break
    if free is not None and memory.state > free:
        raise UserError(
            f"the model's state alone takes {memory.state / 2**30:.1f} GiB on each of {ranks} rank(s), and "
            f"{free / 2**30:.1f} GiB are free",
            place=str(job.folder),
            remedy="Use more ranks, a smaller model or zero = 3; 'headrace calc fit' says what helps",
        )
    asked = job.training.zero == "auto"
    told = lines if asked else [f"warning: {line}" for line in lines if not fits]
    return Chosen(replace(job, training=training), tuple(told))
