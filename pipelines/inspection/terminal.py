"""What people read on a terminal: tables with bars, and texts made harmless."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pipelines.inspection.costs import PassCosts, StageCosts
    from pipelines.inspection.funnel import Duplicates, Edited, Funnel, StageCounts, Tokens

BAR_CELLS: Final = 24
PLAIN_WIDTH: Final = 140
"""Columns where the output is no terminal: a file or a pipe has no width of its own."""
WIDE: Final = 110
"""Columns from which reasons stand beside their numbers."""

# Escape sequences (ECMA-48: CSI, OSC and the other strings, two-character ones), then every control character but line
# feed and tab, and the characters that reorder what stands around them (UAX #9).
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]).*?(?:\x07|\x1b\\|\x9c|$)|\x1b.?", re.S
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def make_console(*, stderr: bool = False) -> Console:
    """Return a console: as wide as the terminal, or wide enough for tables where there is none."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = PLAIN_WIDTH
    return console


def clean(text: str) -> str:
    """Return ``text`` without escape sequences, control characters (line feed and tab aside) and reordering marks."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def bar(share: float, cells: int = BAR_CELLS, *, unicode: bool = True) -> str:
    """Return a bar of ``cells`` characters for a share of 0 to 1; what is not 0 shows at least its thinnest part."""
    share = min(1.0, max(0.0, share))
    if not unicode:
        full = max(1, round(share * cells)) if share else 0
        return "#" * full + "." * (cells - full)
    eighths = max(1, round(share * cells * 8)) if share else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)


def can_draw(console: Console) -> bool:
    """Return whether the console's encoding has block characters."""
    return console.encoding.lower().startswith("utf")


def new_table(title: str, *columns: str | tuple[str, str]) -> Table:
    """Return an empty table; a column given as (name, justify) is justified so."""
    # What a folder or a language is called is no markup.
    title = escape(clean(title))
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        name, justify = column if isinstance(column, tuple) else (column, "left")
        table.add_column(
            escape(name), justify="right" if justify == "right" else "left", no_wrap=bool(justify == "right")
        )
    return table


def number_cell(value: int) -> Text:
    """Return a count for a cell, zero dim."""
    return Text(f"{value:,}", style="dim" if value == 0 else "")


def funnel_table(title: str, funnel: Funnel, *, unicode: bool = True, width: int = PLAIN_WIDTH) -> Group:
    """Return a funnel: per stage seen, kept with a bar of all records, dropped by reason, failed by kind.

    Reasons stand beside the numbers where ``width`` has room for them, and in a list below where it has not.
    """
    is_wide = width >= WIDE
    columns = ("stage", ("seen", "right"), ("kept", "right"), "", ("dropped", "right"), ("failed", "right"))
    table = new_table(title, *columns, *(("why",) if is_wide else ()))
    below = new_table("", "why", "")
    total = funnel[0].seen if funnel else 0
    for link in funnel:
        share = bar(link.kept / total if total else 0.0, BAR_CELLS if is_wide else BAR_CELLS // 2, unicode=unicode)
        dropped = sum(link.dropped.values())
        failed = Text(f"{link.failed:,}", style="red" if link.failed else "dim")
        cells = [Text(link.name), number_cell(link.seen), number_cell(link.kept), Text(share, style="green")]
        why = _why(link)
        table.add_row(*cells, number_cell(dropped), failed, *([why] if is_wide else []))
        if why.plain:
            below.add_row(Text(link.name), why)
    return Group(table) if is_wide or not below.row_count else Group(table, Text(), below)


def _why(link: StageCounts) -> Text:
    why = Text(_reasons(link.dropped))
    if link.failed:
        why.append(("; " if link.dropped else "") + "failed: " + _reasons(link.failures), style="red")
    return why


def _reasons(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{clean(reason)} {rows:,}" for reason, rows in ordered)


def groups_table(title: str, funnels: Mapping[str, Funnel], *, unicode: bool = True, width: int = PLAIN_WIDTH) -> Table:
    """Return one line per language or domain: records, kept with a bar, and what each stage took from it."""
    table = new_table(title, "", ("seen", "right"), ("kept", "right"), "", ("failed", "right"), "dropped by stage")
    for name, funnel in sorted(funnels.items(), key=lambda item: (-item[1][0].seen, item[0])):
        seen, kept = funnel[0].seen, funnel[-1].kept
        dropped = {link.name: sum(link.dropped.values()) for link in funnel if link.dropped}
        failed = sum(link.failed for link in funnel)
        cells = BAR_CELLS if width >= WIDE else BAR_CELLS // 2
        share = bar(kept / seen if seen else 0.0, cells, unicode=unicode)
        numbers = (number_cell(seen), number_cell(kept), Text(share, style="green"), number_cell(failed))
        table.add_row(Text(clean(name)), *numbers, Text(_reasons(dropped)))
    return table


def tokens_table(title: str, tokens: Mapping[str, Tokens], *, unicode: bool = True) -> Table:
    """Return documents and tokens per domain, with a bar of each domain's share of the training tokens."""
    columns = (("documents", "right"), ("tokens", "right"), "", ("held-out documents", "right"), ("tokens", "right"))
    table = new_table(title, "domain", *columns)
    total = sum(row.tokens for row in tokens.values())
    for name, row in tokens.items():
        share = Text(bar(row.tokens / total if total else 0.0, unicode=unicode), style="cyan")
        held = (number_cell(row.held_out_documents), number_cell(row.held_out_tokens))
        table.add_row(Text(name), number_cell(row.documents), number_cell(row.tokens), share, *held)
    return table


def duplicates_table(title: str, kinds: Sequence[Duplicates]) -> Table:
    """Return what deduplication removed and the kept witnesses for it."""
    columns = ["removed", "kept witnesses", "most for one witness"]
    # Of interest where there are any: a bound that no document met is no news.
    if is_limited := any(kind.limited for kind in kinds):
        columns.append("met compared_per_key")
    table = new_table(title, "", *((name, "right") for name in columns))
    for kind in kinds:
        counts = [kind.removed, kind.witnesses, kind.largest, *[kind.limited] * is_limited]
        table.add_row(Text(kind.stage), *map(number_cell, counts))
    return table


def edits_table(title: str, edits: Sequence[Edited]) -> Table:
    """Return what was changed in texts: documents, and characters removed and inserted, by stage and reason."""
    columns = (("documents", "right"), ("characters removed", "right"), ("inserted", "right"))
    table = new_table(title, "stage", "reason", *columns)
    for one in edits:
        numbers = (number_cell(one.documents), number_cell(one.removed_chars), number_cell(one.inserted_chars))
        table.add_row(Text(one.stage), Text(clean(one.reason)), *numbers)
    return table


def costs_table(title: str, passes: Sequence[PassCosts], *, unicode: bool = True, width: int = PLAIN_WIDTH) -> Table:
    """Return where the time went: per pass and stage CPU-seconds with a bar of the run's, rows and bytes, and speeds.

    CPU is a lower bound, and marked so, where a runner had several stages at work in one process: the threads of their
    libraries are then nobody's. Wall time beyond CPU is what a stage has waited for, files above all; it is shown, as
    rows and bytes are, where ``width`` has room for it.
    """
    is_wide = width >= WIDE
    names = ("wall-s", "rows", "rows/CPU-s", "MB", "MB/CPU-s") if is_wide else ("rows/CPU-s", "MB/CPU-s")
    table = new_table(title, "", ("CPU-s", "right"), "", ("share", "right"), *((name, "right") for name in names))
    total = sum(one.cpu_seconds for one in passes)

    def row(name: Text, cpu: float, stages: Sequence[StageCosts], cells: Mapping[str, str]) -> None:
        share = cpu / total if total else 0.0
        drawn = Text(bar(share, BAR_CELLS if is_wide else BAR_CELLS // 2, unicode=unicode), style="magenta")
        shown = (Text(cells.get(name, "")) for name in names)
        least = ("≥ " if unicode else ">= ") if any(stage.is_lower_bound for stage in stages) else ""
        table.add_row(name, Text(f"{least}{cpu:,.2f}"), drawn, Text(f"{share:.1%}", style="dim"), *shown)

    for one in passes:
        wall = sum(stage.wall_seconds for stage in one.stages)
        is_single = len(one.stages) == 1
        cells = _stage_cells(one.stages[0]) if is_single else {"wall-s": f"{wall:,.2f}"}
        row(Text(clean(one.name), style="bold"), one.cpu_seconds, one.stages, cells)
        for stage in one.stages if not is_single else ():
            row(Text(f"  {clean(stage.name)}"), stage.cpu_seconds, [stage], _stage_cells(stage))
    return table


def _stage_cells(stage: StageCosts) -> dict[str, str]:
    """Return what a stage's line says, by column; nothing of rows and bytes that it was not given in batches."""
    size = stage.total.bytes / 1e6
    row_speed, size_speed = stage.per_cpu_second(stage.rows), stage.per_cpu_second(size)
    return {
        "wall-s": f"{stage.wall_seconds:,.2f}",
        "rows": f"{stage.rows:,}" if stage.rows else "",
        "rows/CPU-s": f"{row_speed:,.0f}" if row_speed else "",
        "MB": f"{size:,.1f}" if size else "",
        "MB/CPU-s": f"{size_speed:,.1f}" if size_speed else "",
    }


def units_table(title: str, passes: Sequence[PassCosts], *, unicode: bool = True) -> Table:
    """Return per pass its time on the driver's clock, its units, the slowest of them, and the peak of memory."""
    columns = (("elapsed s", "right"), ("units", "right"), ("median CPU-s", "right"), ("most", "right"), "in unit")
    table = new_table(title, "", *columns, ("peak MB", "right"))
    for one in passes:
        elapsed = "" if one.elapsed_seconds is None else f"{one.elapsed_seconds:,.1f}"
        slowest = (f"{one.slowest.cpu_seconds:,.2f}", clean(one.slowest.unit))
        # Where the system does not let a process begin anew, it is the peak of all that its process did before.
        most = "" if one.is_peak_of_units else "≤ " if unicode else "<= "
        cells = (
            elapsed,
            f"{one.units:,}",
            f"{one.median_cpu_seconds:,.2f}",
            *slowest,
            f"{most}{one.peak_bytes / 1e6:,.0f}",
        )
        table.add_row(Text(clean(one.name), style="bold"), *(Text(cell) for cell in cells))
    return table


def sources_table(title: str, sources: Sequence[Mapping[str, Any]]) -> Table:
    """Return the files that each source of a recipe names."""
    table = new_table(title, "glob", "domain", ("files", "right"), ("bytes", "right"))
    for source in sources:
        numbers = (number_cell(source["files"]), number_cell(source["bytes"]))
        table.add_row(Text(" ".join([*source["glob"], *source["list"]])), Text(source["domain"]), *numbers)
    return table


def loss_table(title: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Table:
    """Return losses in nats, one line per (label, loss by domain)."""
    domains = sorted({domain for _, losses in rows for domain in losses})
    table = new_table(title, "", *((domain, "right") for domain in domains))
    for label, losses in rows:
        table.add_row(Text(label), *(f"{losses[name]:.3f}" if name in losses else "" for name in domains))
    return table


def excerpt(text: str, limit_chars: int, *, indent: str = "    ") -> Text:
    """Return the beginning of a document's text, harmless and indented, for a terminal."""
    shown = clean(text[: 4 * limit_chars])
    cut = shown if len(shown) <= limit_chars and len(text) <= 4 * limit_chars else shown[:limit_chars] + " …"
    return Text("\n".join(indent + line for line in cut.splitlines() if line.strip()))


LEFT_OUT: Final[Mapping[str, tuple[str, str]]] = {
    "missing": ("source is missing", "sources are missing"),
    "dangling": ("link leads nowhere", "links lead nowhere"),
    "special": ("name is not of a regular file", "names are not of regular files"),
    "same_file": ("name is a second name of a file that is read", "names are second names of files that are read"),
    "unnamed": ("source is no longer named by the recipe", "sources are no longer named by the recipe"),
}
"""What is said of one name that is not read, and of several, by why it is not."""


def left_out_lines(rows: Sequence[Mapping[str, str]], most: int = 3) -> list[Text]:
    """Return a line for each reason for which names are not read, with the first few of them.

    Args:
        rows: the plan's ``left_out``.
        most: how many names to show of each reason.
    """
    lines = []
    for why, (one, several) in LEFT_OUT.items():
        names = [row["path"] for row in rows if row["why"] == why]
        if names:
            shown = ", ".join(clean(name) for name in names[:most]) + (", ..." if len(names) > most else "")
            lines.append(Text(f"left out: {len(names):,} {one if len(names) == 1 else several} ({shown})"))
    return lines
