"""Progress of long work: a bar with bytes and ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_PLAIN_SECONDS = 5.0


class Reporter(Protocol):
    """Hears how far a pass is."""

    def begin(self, name: str, total: int, done: int, *, is_bytes: bool) -> None:
        """Start a pass of ``total`` bytes or units, ``done`` of them finished earlier."""

    def advance(self, done: int) -> None:
        """Tell how much is done by now."""

    def end(self, note: str) -> None:
        """Close the pass with a short note."""


class Silent:
    """Says nothing."""

    def begin(self, name: str, total: int, done: int, *, is_bytes: bool) -> None:
        """Say nothing."""

    def advance(self, done: int) -> None:
        """Say nothing."""

    def end(self, note: str) -> None:
        """Say nothing."""


class PassProgress:
    """Progress on a console: bars where it is a terminal, one line at the start and end of each pass otherwise."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._task = 0
        self._name = ""
        self._total = 0
        self._spoken = 0.0
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
        self._name, self._total, self._is_bytes, self._spoken = name, total, is_bytes, time.monotonic()
        if self._console.is_terminal:
            amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
            columns = (TextColumn("{task.description:<16}"), BarColumn(), amount, TimeRemainingColumn())
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._bars.start()
            self._task = int(self._bars.add_task(name, total=total, completed=done))

    def advance(self, done: int) -> None:
        """Move the bar, or say a line every few seconds."""
        if self._bars is not None:
            self._bars.update(self._task, completed=done)  # type: ignore[arg-type]
        elif time.monotonic() - self._spoken > _PLAIN_SECONDS:
            self._spoken = time.monotonic()
            share = 100 * done // max(1, self._total)
            self._console.print(f"{self._name}: {share}% ({self._amount(done)} of {self._amount(self._total)})")

    def end(self, note: str) -> None:
        """Replace the bar by one line."""
        self._close()
        self._console.print(f"[green]✓[/] {self._name:<16} {note}", highlight=False)

    def _amount(self, value: int) -> str:
        return f"{value / 1e6:.1f} MB" if self._is_bytes else str(value)

    def _close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
