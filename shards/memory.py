"""What this machine has, in memory and CPUs, and what a training needs. Both sides check it before they start."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shards.training import ModelSettings, TrainSettings

# A process that has imported torch and holds nothing yet.
PROCESS_BYTES: Final = 400 << 20

# Values kept for the backward pass per token, layer and feature of width, counted in trainer/model.py: inputs of every
# matrix product, norms, rotated queries and keys, and the two halves of the gate (8/3 of width each).
_ACTIVATION_VALUES: Final = 22

# Emulated bf16 (``trainer.bf16``) keeps query, key, value and output of attention in fp32: two more bytes for three of
# them, and four for the output, which is kept in addition to its bf16 copy.
_EMULATED_ATTENTION_BYTES: Final = 10

# Logits, their fp32 copy, its softmax and its gradient.
_LOGIT_BYTES: Final = 16

MAX_LOGITS: Final = 1 << 26
"""Logits held at once; 2^26 are 256 MB in fp32. Beyond that the model works in pieces, and recomputes them."""


def rank_bytes(
    model: ModelSettings, training: TrainSettings, vocabulary: int, contexts: Iterable[int], ranks: int
) -> int:
    """Estimate the peak memory in bytes of one of ``ranks`` training processes, from settings alone.

    Args:
        model: shape of the model.
        training: its precision, ZeRO stage and micro-batches.
        vocabulary: size of the tokeniser's vocabulary.
        contexts: context lengths of the schedule's phases, in tokens.
        ranks: number of processes, which share the model's state.
    """
    compute = 2 if training.precision == "bf16" else 4
    state = training.bytes_per_parameter(ranks) * model.parameters(vocabulary)
    tokens = max(training.rows_per_micro_batch(context) * context for context in contexts)
    activations = tokens * model.layers * model.width * _ACTIVATION_VALUES * compute
    logits = min(tokens * vocabulary, MAX_LOGITS) * _LOGIT_BYTES
    # Whether "auto" means emulation is known only when training starts, so the larger is counted.
    emulation = 0
    if training.precision == "bf16" and training.bf16 != "native":
        emulation = _emulation_bytes(model, vocabulary, tokens)
    return int(state + activations + logits) + emulation + PROCESS_BYTES


def _emulation_bytes(model: ModelSettings, vocabulary: int, tokens: int) -> int:
    """Return the bytes that emulated bf16 needs beyond native bf16: what attention keeps, and one product in fp32."""
    kept = tokens * model.layers * model.width * _EMULATED_ATTENTION_BYTES
    weight = model.width * max(vocabulary, model.hidden_width)
    # Copy and gradient of a weight; inputs, outputs and their gradients.
    return kept + 4 * (2 * weight + 2 * tokens * (model.width + model.hidden_width))


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
