"""Orderly stops: a signal, or the death of the launcher, ends training after the current step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

LAUNCHER: Final = "HEADRACE_LAUNCHER"
"""Variable with the process id of the launcher: a rank may look for its parent only after that has died."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS: Final = 0.5


class Stop:
    """Calling it returns whether training should stop.

    Outside of :meth:`deferred`, a signal or the death of the launcher ends the process at once and silently: there is
    nothing to save, and a rank that waits in a collective for a dead one would never check.
    """

    def __init__(self) -> None:
        self._asked = self._deferred = False
        self._parent = int(os.environ.get(LAUNCHER, os.getppid()))
        threading.Thread(target=self._watch, daemon=True, name="headrace-launcher").start()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        """Return whether a signal has arrived or the launcher has died."""
        return self._asked or os.getppid() != self._parent

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Record signals in this context instead of ending at once."""
        for number in _SIGNALS:
            signal.signal(number, self._ask)
        self._deferred = True
        yield
        # A signal arrives twice, from the terminal and from the launcher: the second must not interrupt the ending.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN if self._asked else signal.SIG_DFL)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def _watch(self) -> None:
        while not self._deferred:
            if os.getppid() != self._parent:
                os._exit(128 + signal.SIGTERM)
            time.sleep(_LOOK_SECONDS)
