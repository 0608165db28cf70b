"""What training reports: a log without times, so that logs can be compared, separate timings, and a console."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from shards.store import Store
from trainer.pace import shown_end, shown_seconds

# Without a terminal to draw a bar on: at most this many lines over a whole training, besides the first and the last.
_PLAIN_LINES = 20


class Log:
    """JSON lines, each with a ``step``.

    Resuming after a step drops the lines of later steps, so that no line appears twice; starting at step 0 drops all.
    """

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        self._open(step)

    def _open(self, step: int) -> None:
        path = self._path
        kept = [line for line in _lines(path) if line["step"] <= step and step > 0]
        if path.exists() or kept:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
            Store(path.parent).write_bytes(path.name, text.encode())
        self._file = path.open("a", encoding="utf-8")

    def rewind(self, step: int) -> None:
        """Drop the lines of later steps."""
        self._file.close()
        self._open(step)

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line."""
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                return  # an incomplete last line, left by a kill
            if not isinstance(line, dict) or not isinstance(line.get("step"), int):
                return
            yield line


class Screen:
    """Progress for people, shown by the first rank only: a bar on a terminal, occasional lines elsewhere."""

    def __init__(self, first_rank: bool, steps: int, now: Callable[[], datetime] = datetime.now) -> None:
        """Show a training of ``steps`` steps; ``now`` returns the local time."""
        self._now, self._has_told_end, self._end = now, False, steps
        self._console = Console(quiet=not first_rank, highlight=False, soft_wrap=True)
        self._steps, self._every = steps, max(1, -(-steps // _PLAIN_LINES))
        self._bar: Progress | None = None

    @contextmanager
    def progress(self, done: int, end: int) -> Iterator[None]:
        """Show a bar, if there is a terminal, while training runs from step ``done`` to ``end``."""
        self._end = end
        if not (self._console.is_terminal and sys.stdout.isatty()) or self._console.quiet:
            yield
            return
        columns = (
            TextColumn("training"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            # The column that is cut on a narrow terminal.
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        )
        with Progress(*columns, console=self._console, expand=True) as self._bar:
            self._bar.add_task("", total=self._steps, completed=done, left="")
            yield
        self._bar = None

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False)

    def step(self, line: Mapping[str, Any], tokens_per_second: float, seconds_left: float | None = None) -> None:
        """Show a finished step and, once it is known, when training will end."""
        self._tell_end(seconds_left)
        loss, speed = f"loss {line['loss']:.4f}", f"{tokens_per_second:,.0f} tokens/s"
        left = f"{shown_seconds(seconds_left)} left" if seconds_left else ""
        if self._bar is not None:
            text = f"{line['phase']}  {loss}  {speed}"
            self._bar.update(self._bar.task_ids[0], completed=line["step"], description=text, left=left)
        elif line["step"] == 1 or line["step"] % self._every == 0 or line["step"] == self._end:
            rate = f"lr {line['learning_rate']:.2e}  norm {line['gradient_norm']:.2f}"
            where = f"step {line['step']}/{self._steps}  {line['phase']} ({line['context_tokens']} tokens)"
            self.say(f"{where}  {loss}  {rate}  {speed}  {left}".rstrip())

    def _tell_end(self, seconds_left: float | None) -> None:
        """Print once when training will end; from then on, each line says how much time is left."""
        if not seconds_left or self._has_told_end:
            return
        self._has_told_end = True
        what = "training ends" if self._end == self._steps else f"training stops after step {self._end}"
        self.say(f"{what} in about {shown_seconds(seconds_left)}, at {shown_end(seconds_left, self._now())}")

    def losses(self, title: str, by_domain: Mapping[str, tuple[float, int]]) -> None:
        """Print the loss of each domain."""
        shown = "  ".join(f"{domain} {loss:.4f}" for domain, (loss, _) in by_domain.items())
        self.say(f"{title}: {shown}")
