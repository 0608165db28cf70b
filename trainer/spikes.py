"""Spikes of loss and gradient, found by a robust z-score over the steps before, and what a run does about them.

Everything is decided from numbers that are reduced over all ranks, so every rank decides alike; what a run remembers is
in its checkpoint, so a run that was killed decides alike too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shards.schedule.schedule import Intervention
from shards.training import TrainSettings

_NORMAL_MAD: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

_HISTORY: Final = 128
_LEAST_HISTORY: Final = 16

# Deviations below this share of the median are noise, however quiet the steps before were.
_FLOOR: Final = 0.01


@dataclass
class Spikes:
    """The steps of one phase so far that were no spike, and the spike that is going on.

    Attributes:
        losses: of the last steps; ``norms`` are of the same steps.
        phase: index of the phase that they belong to: another context or mixture has another loss.
        since: first step of the spike that is going on; None if there is none.
        length: number of its steps.
        healed: spikes that the run has recovered from.
    """

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    phase: int = 0
    since: int | None = None
    length: int = 0
    healed: int = 0

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Spikes:
        """Read what a checkpoint holds."""
        return cls(**value)

    def note(self, step: int, phase: int, loss: float, norm: float, settings: TrainSettings) -> bool:
        """Take note of a step and return whether it makes a spike one that has lasted too long."""
        if phase != self.phase:
            self.losses, self.norms, self.phase, self.since, self.length = [], [], phase, None, 0
        if not self._is_spike(loss, norm, settings.spike_score):
            self.losses, self.norms = [*self.losses, loss][-_HISTORY:], [*self.norms, norm][-_HISTORY:]
            self.since, self.length = None, 0
            return False
        self.since = step if self.since is None else self.since
        self.length += 1
        return self.length >= settings.spike_steps

    def _is_spike(self, loss: float, norm: float, limit: float) -> bool:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return True
        if len(self.losses) < _LEAST_HISTORY:
            return False
        return robust_score(loss, self.losses) > limit or robust_score(norm, self.norms) > 2 * limit


def steps_to_keep(settings: TrainSettings) -> int | None:
    """Return how far back a checkpoint must be kept; None if none is gone back to.

    When a spike is found, the newest checkpoint may already lie behind it: its steps, the one before it, and the one
    that is queued while results are read.
    """
    return None if settings.on_spike == "stop" else settings.spike_rollback_steps + settings.spike_steps + 3


def robust_score(value: float, before: list[float]) -> float:
    """Return how many standard deviations ``value`` lies above the median, estimated from absolute deviations."""
    middle = statistics.median(before)
    deviation = statistics.median([abs(one - middle) for one in before])
    return (value - middle) / max(_NORMAL_MAD * deviation, _FLOOR * abs(middle), 1e-12)


def intervention(spikes: Spikes, last: int, end: int, settings: TrainSettings, batches: str) -> Intervention:
    """Return what is changed about a spike whose newest step is ``last``.

    The batch before the first high loss is skipped as well: it made the update after which the loss was high.

    Args:
        spikes: with the spike that is going on.
        last: its newest step.
        end: steps of the schedule.
        settings: whether to skip batches or to lower the rate.
        batches: digest of the batches' content, for the record.
    """
    assert spikes.since is not None
    first = max(0, spikes.since - 1)
    reason = f"spike from step {spikes.since + 1} to {last + 1}; batches {batches}"
    if settings.on_spike == "lower_rate":
        return Intervention(kind="scale_learning_rate", from_step=first, until_step=end, factor=0.9, reason=reason)
    return Intervention(kind="skip_batch", from_step=first, until_step=last + 1, reason=reason)
