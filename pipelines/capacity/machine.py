"""What the machine has to offer a run, and the refusal of a run that would not fit."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Final

from pipelines.capacity.estimate import Estimate
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.memory import available_memory

FREE_SHARE: Final = 0.95
"""Of the free disk; a disk filled to its last byte serves no one."""


@dataclass(frozen=True)
class Machine:
    """What the machine has: bytes free on the output's disk (None where remote) and of memory (None if unknown)."""

    disk_bytes: int | None
    memory_bytes: int | None


def default_workers(needed_per_worker: int, memory_bytes: int | None, cpus: int) -> int:
    """Return as many workers as there are CPUs, fewer where memory would not hold them, and one at least."""
    if memory_bytes is None:
        return max(1, cpus)
    # The driver is a process beside the workers, as large as one of them.
    return max(1, min(cpus, memory_bytes // max(1, needed_per_worker) - 1))


def require_capacity(needed: Estimate, machine: Machine, out: str, *, already_bytes: int = 0) -> None:
    """Refuse a run that cannot fit.

    Args:
        needed: the estimate.
        machine: what is free.
        out: the output folder, for the message.
        already_bytes: what an earlier attempt has written there, which need not be written again.

    Raises:
        UserError: with what is needed, what is there, and what to change.
    """
    writing = max(0, needed.disk_bytes - already_bytes)
    if machine.disk_bytes is not None and writing > machine.disk_bytes * FREE_SHARE:
        raise UserError(
            f"the run needs about {shown_bytes(writing)} of disk, and {shown_bytes(machine.disk_bytes)} are free",
            place=f"--out {out}",
            remedy="Free some, name a folder on another disk, or take a share of the documents with --sample",
        )
    if machine.memory_bytes is None:
        return
    if needed.curation_bytes > machine.memory_bytes:
        raise UserError(
            f"{needed.workers or 1} worker(s) need about {shown_bytes(needed.curation_bytes)} of memory, and "
            f"{shown_bytes(machine.memory_bytes)} are free",
            place="--workers",
            remedy="Take fewer workers, or lower sources.max_record_bytes and dedup.range_bytes",
        )
    if needed.training_bytes > machine.memory_bytes:
        raise UserError(
            f"training needs about {shown_bytes(needed.training_bytes)} of memory on this machine, and "
            f"{shown_bytes(machine.memory_bytes)} are free",
            place="recipe, keys model and training",
            remedy="Lower the model's size or training.micro_batch_tokens, or only curate, with --no-train",
        )


def measure(workspace: Workspace) -> Machine:
    """Measure what is free where the run will be, and on this machine."""
    path = workspace.store.local_path(".run")
    if path is None:
        return Machine(None, available_memory())
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    return Machine(shutil.disk_usage(folder).free, available_memory())


def bytes_at(workspace: Workspace) -> int:
    """Return the bytes that an earlier attempt has left in the output folder."""
    store = workspace.store
    return sum(store.size(path) or 0 for path in store.list("."))


def shown_bytes(value: int) -> str:
    """Return a size for people: ``512 MB``, ``3.2 GB``; units of 1,000."""
    size = float(value)
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB" if size < 999.5 else f"{size / 1000:.1f} TB"
