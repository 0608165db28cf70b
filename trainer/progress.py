"""How far a training has come: everything except tensors that an exact resume needs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shards.training import Bf16


def code_version() -> str:
    """Return the version of headrace, or "unknown" if it is not installed."""
    try:
        return importlib.metadata.version("headrace")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Progress:
    """How far a training has come, and which one it is: everything except tensors that an exact resume needs.

    Attributes:
        step: steps done.
        tokens: row slots served.
        updates: steps that changed the weights, so without skipped ones.
        stream: state of the stream.
        identity: what must not have changed on resume (``Job.identity``).
        interventions: the run's deviations from the schedule, as ``Intervention`` reads them.
        last_phase_steps: steps of the schedule's last phase, if they had to be counted (``trainer.stream.fit``).
        spikes: what is remembered of losses and norms (``trainer.spikes.Spikes``).
        bf16: how bf16 products were computed, ``native`` or ``emulated``; None in fp32.
        code_version: version of headrace that wrote the checkpoint; for people, never compared.
    """

    step: int
    tokens: int
    updates: int
    stream: Mapping[str, Any]
    identity: Mapping[str, str]
    interventions: Sequence[Mapping[str, Any]] = ()
    last_phase_steps: int | None = None
    spikes: Mapping[str, Any] = field(default_factory=dict)
    bf16: Bf16 | None = None
    code_version: str = field(default_factory=code_version)

    @property
    def name(self) -> str:
        """Name of its checkpoint."""
        return f"step-{self.step:08d}"
