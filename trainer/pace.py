"""How fast a training runs and when it will end: only for people, never for what is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

# The first step includes warming up. An estimate needs a few more steps, or one that took long enough to be typical.
_FIRST_STEPS: Final = 3
_FIRST_SECONDS: Final = 10.0

_NEAR_SECONDS: Final = 600.0

_WINDOW_STEPS: Final = 200
"""Steps over which the pace is measured: enough to smooth it, few enough to follow a new phase soon."""


class Pace:
    """Seconds per token over the last steps, and the time left at that pace.

    Evaluations and checkpoints between steps are included; what follows the last step is not.
    """

    def __init__(self, end_tokens: int, clock: Callable[[], float]) -> None:
        """Start with no steps.

        Args:
            end_tokens: row slots served by the end of training.
            clock: returns seconds from any origin.
        """
        self._end_tokens, self._clock = end_tokens, clock
        self._steps: deque[tuple[int, float]] = deque(maxlen=_WINDOW_STEPS + 1)

    def note(self, tokens: int) -> None:
        """Record that a step has ended, with ``tokens`` row slots served so far."""
        self._steps.append((tokens, self._clock()))

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end; None while there are too few measurements."""
        if len(self._steps) < 2:
            return None
        (first_tokens, begun), (tokens, now) = self._steps[0], self._steps[-1]
        seconds = now - begun
        if seconds <= 0 or (len(self._steps) <= _FIRST_STEPS and seconds < _FIRST_SECONDS):
            return None
        return (self._end_tokens - tokens) * seconds / (tokens - first_tokens)


def shown_seconds(seconds: float) -> str:
    """Format a duration in its two largest units: ``45 s``, ``1 min 32 s``, ``3 h 5 min``, ``2 d 4 h``."""
    whole = round(seconds)
    for size, unit, lesser_size, lesser in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // lesser_size} {lesser}"
    return f"{whole} s"


def shown_end(seconds: float, now: datetime) -> str:
    """Format the time of day ``seconds`` after ``now``: with seconds if it is near, with the date if on another day."""
    end = now + timedelta(seconds=seconds)
    time = f"{end:%H:%M:%S}" if seconds < _NEAR_SECONDS else f"{end:%H:%M}"
    return time if end.date() == now.date() else f"{end:%Y-%m-%d} {time}"
