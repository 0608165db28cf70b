"""What this machine has, memory and CPUs, and what a training needs. Both sides ask, before either begins."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shards.training import ModelSettings, TrainSettings

# A process of torch before it holds anything.
PROCESS_BYTES: Final = 400 << 20

# Values kept for the backward pass per token, layer and feature of width: inputs of every matrix product, norms,
# rotated queries and keys, and the gate's halves (8/3 of width each), counted over trainer/model.py.
_ACTIVATION_VALUES: Final = 22

# Emulated bf16 (``trainer.bf16``) keeps query, key, value and output of attention in fp32: two bytes more for three of
# them, and the output beside its bf16 copy.
_EMULATED_ATTENTION_BYTES: Final = 10

# Logits, their fp32 copy, its softmax and its gradient.
_LOGIT_BYTES: Final = 16

MAX_LOGITS: Final = 1 << 26
"""Logits held at once: 2^26 in fp32 are 256 MB. The model takes more tokens in pieces, and recomputes them."""


def rank_bytes(
    model: ModelSettings, training: TrainSettings, vocabulary: int, contexts: Iterable[int], ranks: int
) -> int:
    """Estimate the most memory in bytes that one of ``ranks`` processes of a training needs, from settings alone.

    Args:
        model: shape of the model.
        training: its precision, ZeRO stage and micro-batches.
        vocabulary: tokens that the tokeniser knows.
        contexts: context lengths of the schedule's stages, in tokens.
        ranks: processes that share the model's state.
    """
    compute = 2 if training.precision == "bf16" else 4
    state = training.bytes_per_parameter(ranks) * model.parameters(vocabulary)
    tokens = max(training.rows_per_micro_batch(context) * context for context in contexts)
    activations = tokens * model.layers * model.width * _ACTIVATION_VALUES * compute
    logits = min(tokens * vocabulary, MAX_LOGITS) * _LOGIT_BYTES
    # Whether "auto" comes to emulation is known where training starts: the larger is counted.
    emulation = 0
    if training.precision == "bf16" and training.bf16 != "native":
        emulation = _emulation_bytes(model, vocabulary, tokens)
    return int(state + activations + logits) + emulation + PROCESS_BYTES


def _emulation_bytes(model: ModelSettings, vocabulary: int, tokens: int) -> int:
    """Return what emulating bf16 takes beyond native bf16: what attention keeps, and one product's fp32 tensors."""
    kept = tokens * model.layers * model.width * _EMULATED_ATTENTION_BYTES
    weight = model.width * max(vocabulary, model.hidden_width)
    # A weight's copy and gradient; inputs, outputs and their gradients.
    return kept + 4 * (2 * weight + 2 * tokens * (model.width + model.hidden_width))


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that are free: the least of the machine's and the control group's, None if unknown.

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


# Version 2, then version 1: the limit, what is used, and the statistics that name the file cache, which gives way.
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
    """Return the number of CPUs that this process may use, one at least: the affinity's, or the control group's quota.

    Threads beyond a container's quota do not run beside each other; they wait, and use the quota up by waiting. So it
    is rounded down. It is the quota of the group at the root, as a container sees its own.

    Args:
        root: where ``sys`` is.
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota(root / "sys/fs/cgroup")
    return mine if quota is None else max(1, min(mine, int(quota)))


def default_ranks() -> int:
    """Return how many ranks train on this machine's CPUs where nobody says."""
    return min(2, cpus())


def _cpu_quota(base: Path) -> float | None:
    """Return how many CPUs' time the control group, of version 2 or 1, may use; None where it is not bounded."""
    try:
        # An unbounded group has the word "max" here, and -1 in version 1: neither is a number.
        quota, period = (base / "cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    for name in ("cpu", "cpu,cpuacct"):
        allowed, each = (_number(base / name / f"cpu.cfs_{what}_us") for what in ("quota", "period"))
        if allowed and each:
            return allowed / each
    return None
