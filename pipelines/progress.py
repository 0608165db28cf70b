"""Progress of long work: a bar with bytes and ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

PLAIN_SECONDS = 5.0
"""How long plain lines keep silent between two of them."""


class Reporter(Protocol):
    """Hears how far a pass is."""

    def begin(self, name: str, total: int, done: int, *, is_bytes: bool) -> None:
        """Start a pass of ``total`` bytes or units, ``done`` of them finished earlier."""

    def advance(self, done: int) -> None:
        """Report how much is done by now."""

    def end(self, note: str) -> None:
        """Close the pass with a short note."""


class PassProgress:
    """Progress on a console: bars where it is a terminal; otherwise a line every few seconds and one at the end.

    ``advance`` may be called from another thread. As a context manager it takes an unfinished bar away at the end.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._bars: Progress | None = None
        self._task = TaskID(0)
        self._name = ""
        self._total = self._before = 0
        self._started = self._spoken = 0.0
        self._is_bytes = False

    def __enter__(self) -> PassProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def begin(self, name: str, total: int, done: int, *, is_bytes: bool) -> None:
        """Open a bar, or start to speak in lines."""
        self._close()
        self._name, self._total, self._before, self._is_bytes = name, total, done, is_bytes
        self._started = self._spoken = self._clock()
        if self._console.is_terminal:
            amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
            columns = (TextColumn("{task.description:<16}"), BarColumn(), amount, TimeRemainingColumn())
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._bars.start()
            self._task = self._bars.add_task(name, total=total, completed=done)

    def advance(self, done: int) -> None:
        """Move the bar, or say a line every few seconds."""
        if self._bars is not None:
            self._bars.update(self._task, completed=done)
            return
        now = self._clock()
        if now - self._spoken >= PLAIN_SECONDS:
            self._spoken = now
            share = 100 * done // max(1, self._total)
            amounts = f"{self._amount(done)} of {self._amount(self._total)}"
            self._say(f"{self._name}: {share}% ({amounts}){self._remaining(done, now)}")

    def end(self, note: str) -> None:
        """Replace the bar by one line."""
        self._close()
        mark = "✓" if self._console.encoding.lower().startswith("utf") else "done"
        self._console.print(Text.assemble((mark, "green"), f" {self._name:<16} {note}"), soft_wrap=True)

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def _remaining(self, done: int, now: float) -> str:
        if done <= self._before or done >= self._total:
            return ""
        seconds = (now - self._started) * (self._total - done) / (done - self._before)
        minutes, rest = divmod(round(seconds), 60)
        return f", about {minutes}:{rest:02d} left"

    def _amount(self, value: int) -> str:
        return f"{value / 1e6:.1f} MB" if self._is_bytes else str(value)

    def _close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
