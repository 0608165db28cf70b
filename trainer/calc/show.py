"""How the calculators print: a table for people, or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import rich.table
from rich.console import Console

_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass
class Table:
    """Rows of cells under column names; numbers are shown with a few digits."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: str | float) -> None:
        """Add a row."""
        self.rows.append(tuple(cell if isinstance(cell, str) else f"{cell:,.4g}" for cell in cells))


def show(found: Mapping[str, Any], table: Table, as_json: bool, *, title: str, note: str = "") -> None:
    """Print what was found, as JSON or as a table with a title and a note."""
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        console.print_json(json.dumps(found))
        return
    shown = rich.table.Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if number == 0 or column.startswith("because") else "right")
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    if note:
        console.print(note)


def tokens_and_parameters(count: float) -> str:
    """Format a count of tokens or parameters with three digits: ``29.4 B``, ``566 B``."""
    for size, unit in _UNITS:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g}"
