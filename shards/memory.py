"""What this machine has, in memory and CPUs. Both sides check it before they start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of free memory: the lower of the machine's and the control group's, None if both are unknown.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    found = [_of_machine(root), _of_group(root)]
    known = [value for value in found if value is not None]
    return min(known) if known else None


def _of_machine(root: Path) -> int | None:
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


# Version 2, then version 1: the limit, the usage, and the statistics that count the file cache, which is reclaimable.
_GROUPS: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def _of_group(root: Path) -> int | None:
    base = root / "sys/fs/cgroup"
    for limit_name, used_name, statistics, cache in _GROUPS:
        limit, used = _number(base / limit_name), _number(base / used_name)
        if limit is None or used is None or limit >= 1 << 60:
            continue
        return max(0, limit - used + _statistic(base / statistics, cache))
    return None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _statistic(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)


def cpus(root: Path = Path("/")) -> int:
    """Return the number of CPUs that this process may use, at least one: those of its affinity, within the quota.

    The control group's quota is rounded down: threads beyond it do not run in parallel but wait, and waiting uses up
    the quota too. It is read from the group at the root, where a container sees its own.

    Args:
        root: where ``sys`` is.
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota(root / "sys/fs/cgroup")
    return mine if quota is None else max(1, min(mine, int(quota)))


def default_ranks() -> int:
    """Return how many ranks train on this machine's CPUs by default."""
    return min(2, cpus())


def _cpu_quota(base: Path) -> float | None:
    """Return the CPU quota of the control group (version 2 or 1) in CPUs; None if there is no limit."""
    try:
        # Without a limit this is the word "max", and -1 in version 1: neither parses as a positive number.
        quota, period = (base / "cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    for name in ("cpu", "cpu,cpuacct"):
        allowed, each = (_number(base / name / f"cpu.cfs_{what}_us") for what in ("quota", "period"))
        if allowed and each:
            return allowed / each
    return None
