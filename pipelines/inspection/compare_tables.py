"""Two runs side by side on a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.inspection.compare import Comparison, Move, links
from pipelines.inspection.funnel import Funnel
from pipelines.inspection.terminal import clean, new_table, number_cell


def comparison_tables(found: Comparison, names: tuple[str, str], *, unicode: bool = True) -> Iterator[RenderableType]:
    """Yield the tables of a comparison.

    Args:
        found: the comparison.
        names: what to call the runs.
        unicode: whether the terminal has more than ASCII.
    """
    yield changed_table(found, names)
    yield counts_table("Documents by what ended their way", found, names)
    for title, groups in (
        ("Kept by language", (found.before.languages, found.after.languages)),
        ("Kept by domain", (found.before.domains, found.after.domains)),
    ):
        yield _groups_table(title, groups, names)
    if found.counts_only is not None:
        yield Text(f"Only counts are compared: {clean(found.counts_only)}.")
    else:
        yield moved_table("Documents that moved", found.moved, unicode=unicode)
        moved = sum(found.moved.values())
        yield Text(
            f"{moved:,} of {moved + found.same:,} records ended otherwise; language and domain are {clean(names[0])}'s."
        )


def changed_table(found: Comparison, names: tuple[str, str]) -> RenderableType:
    """Return the keys of the recipe that differ."""
    if not found.changed:
        return Text("The recipes say the same.")
    table = new_table("What the recipes say otherwise", "key", *(clean(name) for name in names))
    for key, *values in found.changed:
        table.add_row(Text(clean(key)), *(Text(_value(value)) for value in values))
    return table


def _value(value: Any) -> str:
    return "" if value is None else clean(json.dumps(value, ensure_ascii=False))


def counts_table(title: str, found: Comparison, names: tuple[str, str]) -> Table:
    """Return the records that each link dropped and failed by reason in both runs, and what was kept in the end."""
    table = _sides_table(title, names)
    sides = [{link.name: link for link in funnel} for funnel in (found.before.stages, found.after.stages)]
    for name in links(found.before.stages, found.after.stages):
        both = [side.get(name) for side in sides]
        seen = [None if link is None else link.seen for link in both]
        _add_row(table, Text(name, style="bold"), seen, note="seen")
        for kind in ("dropped", "failures"):
            counts = [{} if link is None else getattr(link, kind) for link in both]
            for reason in sorted({*counts[0], *counts[1]}):
                mark = " (failed)" if kind == "failures" else ""
                _add_row(table, Text(f"  {clean(reason)}{mark}"), [count.get(reason, 0) for count in counts])
    kept = [funnel[-1].kept if funnel else 0 for funnel in (found.before.stages, found.after.stages)]
    _add_row(table, Text("kept", style="bold green"), kept)
    return table


def _groups_table(title: str, groups: tuple[Mapping[str, Funnel], ...], names: tuple[str, str]) -> Table:
    table = _sides_table(title, names)
    for name in sorted({*groups[0], *groups[1]}):
        kept = [group[name][-1].kept if name in group else 0 for group in groups]
        if any(kept):
            _add_row(table, Text(clean(name)), kept)
    return table


def _sides_table(title: str, names: tuple[str, str]) -> Table:
    columns = ((clean(names[0]), "right"), (clean(names[1]), "right"), ("change", "right"))
    return new_table(title, "", *columns, "")


def _add_row(table: Table, name: Text, counts: list[int | None] | list[int], note: str = "") -> None:
    cells = [Text("") if count is None else number_cell(count) for count in counts]
    change = (counts[1] or 0) - (counts[0] or 0)
    said = Text("" if change == 0 or None in counts else f"{change:+,}", style="red" if change < 0 else "green")
    table.add_row(name, *cells, said, Text(note, style="dim"))


def moved_table(title: str, moved: Mapping[Move, int], *, unicode: bool = True) -> Table:
    """Return the documents that ended otherwise: from where to where, by language and domain."""
    table = new_table(title, "", ("documents", "right"), "languages", "domains")
    ends: dict[tuple[str, str], list[tuple[Move, int]]] = {}
    for move, rows in moved.items():
        ends.setdefault((move.before.words(), move.after.words()), []).append((move, rows))
    arrow = " → " if unicode else " -> "
    ranked = sorted(ends.items(), key=lambda item: (-sum(rows for _, rows in item[1]), item[0]))
    for (before, after), own in ranked:
        total = sum(rows for _, rows in own)
        groups = (_listed((getattr(move, by), rows) for move, rows in own) for by in ("language", "domain"))
        table.add_row(Text(clean(f"{before}{arrow}{after}")), number_cell(total), *groups)
    return table


def _listed(counts: Iterator[tuple[str, int]]) -> Text:
    total: Counter[str] = Counter()
    for name, rows in counts:
        total[name] += rows
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return Text(", ".join(f"{clean(name)} {rows:,}" for name, rows in ordered))
