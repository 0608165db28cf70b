"""What the machine has to offer a run, and the refusal of a run that would not fit."""

from __future__ import annotations

import resource
import shutil
from dataclasses import dataclass
from typing import Final

from pipelines.capacity.estimate import Estimate
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.memory import available_memory

FREE_SHARE: Final = 0.95
"""Of the free disk; a disk filled to its last byte serves no one."""

ADDRESS_BYTES: Final = 2_200_000_000
"""Addresses that threads, and libraries for themselves, reserve beyond the memory that a process uses: measured 2.0 to
2.2 GB in workers and driver. Below that they fail at any place, a C++ library by ending the process."""


@dataclass(frozen=True)
class Machine:
    """What the machine has: bytes free on the output's disk (None where remote) and of memory (None if unknown)."""

    disk_bytes: int | None
    memory_bytes: int | None
    address_bytes: int | None = None
    """What the system lets one process have of addresses (``ulimit -v``), None without a limit."""


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
    addresses = ADDRESS_BYTES + max(needed.worker_bytes, needed.driver_bytes)
    if machine.address_bytes is not None and addresses > machine.address_bytes:
        raise UserError(
            f"a process needs about {shown_bytes(addresses)} of addresses, most of them without memory behind them, "
            f"and is limited to {shown_bytes(machine.address_bytes)}",
            place="ulimit -v",
            remedy="Raise it ('ulimit -v unlimited'); to limit memory, use fewer workers or a control group",
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
        return Machine(None, available_memory(), _address_limit())
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    return Machine(shutil.disk_usage(folder).free, available_memory(), _address_limit())


def _address_limit() -> int | None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


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
