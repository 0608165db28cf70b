"""Stopping in order: a signal, or the end of whoever started the ranks, ends training after the step that it is in."""

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
"""Variable with the process id of who starts the ranks. A rank may look for its parent when that is gone already."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS: Final = 0.5


class Stop:
    """Called, it tells whether training is to stop.

    Outside of :meth:`heeded` the signals, and the end of whoever started the ranks, end the process at once and in
    silence: there is nothing to save, and a rank that waits in a collective for one that died would never come to look.
    """

    def __init__(self) -> None:
        self._asked = self._heeded = False
        self._parent = int(os.environ.get(LAUNCHER, os.getppid()))
        threading.Thread(target=self._watch, daemon=True, name="headrace-launcher").start()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        """Return whether a signal came, or the process that started this one is gone."""
        return self._asked or os.getppid() != self._parent

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Take note of signals meanwhile, instead of ending."""
        for number in _SIGNALS:
            signal.signal(number, self._ask)
        self._heeded = True
        yield
        # A signal comes twice, from the terminal and from who started the ranks: the second must not cut the ending.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN if self._asked else signal.SIG_DFL)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def _watch(self) -> None:
        while not self._heeded:
            if os.getppid() != self._parent:
                os._exit(128 + signal.SIGTERM)
            time.sleep(_LOOK_SECONDS)
