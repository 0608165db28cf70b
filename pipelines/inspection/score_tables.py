"""Histograms of scores on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipelines.inspection.scores import QUANTILES, Bin, Histogram
from pipelines.inspection.terminal import BAR_CELLS, PLAIN_WIDTH, WIDE, bar, clean, new_table, number_cell
from pipelines.inspection.wording import Limit
from pipelines.passes.score_counts import end_of

MOST_LINES: Final = 40
"""Lines of a histogram; where it has more bins, some stand together."""

_FEW_QUANTILES: Final = (5.0, 50.0, 95.0)


def scores_table(title: str, found: Sequence[Histogram], *, width: int = PLAIN_WIDTH) -> Table:
    """Return one line per score: documents with it, those dropped by it, percentiles, and the limits."""
    wanted = QUANTILES if width >= WIDE else _FEW_QUANTILES
    columns = (("documents", "right"), ("dropped", "right"), *((f"{percent:g}%", "right") for percent in wanted))
    table = new_table(title, "score", *columns, "limits")
    link = ""
    for one in found:
        if one.link != link:
            link = one.link
            table.add_row(Text(link, style="bold"))
        steps = [one.quantile(percent) for percent in wanted]
        cells = ["" if step is None else f"{one.score.value_of(step):.4g}" for step in steps]
        counts = number_cell(one.rows), number_cell(one.dropped)
        limits = "; ".join(limit.words() for limit in one.limits)
        table.add_row(Text(f"  {one.score.name}"), *counts, *cells, Text(clean(limits)))
    return table


def histogram_table(one: Histogram, *, unicode: bool = True, width: int = PLAIN_WIDTH) -> Group:
    """Return a score's histogram: documents per bin with a bar, those dropped by it, and where its limits are."""
    meaning = f": {one.score.meaning}" if one.score.meaning else ""
    heading = Text(f"{one.column}{meaning}", style="bold")
    if not one.bins:
        return Group(heading, *(Text(f"  {text}") for text in _notes(one)))
    table = new_table("", "", ("documents", "right"), "", ("dropped", "right"), "")
    lines = _together(one.bins, MOST_LINES) if one.score.is_number else [[each] for each in one.bins[:MOST_LINES]]
    highest = max((sum(each.rows for each in line) for line in lines), default=0)
    cells = 2 * BAR_CELLS if width >= WIDE else BAR_CELLS
    for line in lines:
        rows, dropped = sum(each.rows for each in line), sum(each.dropped for each in line)
        drawn = Text(bar(rows / highest, cells, unicode=unicode), style="red" if dropped == rows else "green")
        table.add_row(
            _name(one, line), number_cell(rows), drawn, number_cell(dropped), Text(_edges(one, line, unicode))
        )
    return Group(heading, table, *(Text(f"  {text}") for text in _notes(one)))


def _together(bins: Sequence[Bin], most: int) -> list[Sequence[Bin]]:
    each = -(-len(bins) // most) or 1
    return [bins[start : start + each] for start in range(0, len(bins), each)]


def _name(one: Histogram, line: Sequence[Bin]) -> Text:
    first, last = line[0], line[-1]
    if first.start is None:
        return Text(clean(first.name) if first.name is not None else "(others)")
    end = end_of(one.score, last.start or 0)
    start = _edge(one, first.start)
    if end is None:
        return Text(f"{start} and more")
    if one.score.scale == "count":
        # Whole numbers: the last one in the bin says more than the one after it.
        return Text(start if end - 1 == first.start else f"{start} to {_edge(one, end - 1)}")
    return Text(f"{start} to {_edge(one, end)}")


def _edge(one: Histogram, step: int) -> str:
    # Edges of whole numbers are exact; those of powers of ten are not round, and nobody reads seven digits of them.
    return f"{one.score.value_of(step):.{4 if one.score.scale == 'log10' else 15}g}"


def _edges(one: Histogram, line: Sequence[Bin], unicode: bool) -> str:
    """Return the limits that are in a line's bins, as far as they are the same for all documents."""
    arrow, said = "◂ " if unicode else "< ", []
    for limit in one.limits:
        step = limit.bound.default if limit.bound is not None and limit.bound.by is None else None
        if step is None or line[0].start is None:
            continue
        end = end_of(one.score, line[-1].start or 0)
        if line[0].start <= step and (end is None or step < end):
            said.append(f"{arrow}{limit.words()}")
    return ", ".join(said)


def _notes(one: Histogram) -> list[str]:
    if not one.rows:
        return ["no document has this score"]
    said = []
    if one.score.is_number:
        steps = ((percent, one.quantile(percent)) for percent in QUANTILES)
        listed = ", ".join(f"{percent:g}% {_edge(one, step)}" for percent, step in steps if step is not None)
        said.append(f"percentiles, to the bin: {listed}")
    return said + [f"{limit.check.reason}: {clean(limit.words())}{_beyond(one, limit)}" for limit in one.limits]


def _beyond(one: Histogram, limit: Limit) -> str:
    found: Any = one.beyond(limit)
    if found is None:
        return ""
    fewest, most = found
    many = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return f"; beyond it {many} of {one.rows:,}"
