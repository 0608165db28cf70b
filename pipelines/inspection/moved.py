"""What moving a limit does: documents by what dropped them, before and after, as far as scores alone decide it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from pipelines.inspection.terminal import clean
from pipelines.passes.drops import late_drops, overlaid
from pipelines.run import Run
from pipelines.tables import group_counts, read_table

KEPT = "kept"
_KEYS = ["dropped_by", "reason", "language", "domain"]


class Fate(NamedTuple):
    """Where a document's way through the judges ended: at no link if it is kept."""

    link: str | None
    reason: str | None
    language: str
    domain: str


@dataclass(frozen=True)
class Move:
    """Documents that end at one link for one reason, before and after; ``link`` is ``kept`` for those that stay."""

    link: str
    reason: str
    language: str
    domain: str
    before: int
    after: int


def fates(run: Run) -> Counter[Fate]:
    """Count the documents of a run by their fate after judging and late limits, before duplicates are looked for."""
    found: Counter[Fate] = Counter()
    marks = run.files("late", "marks") if run.has("late") else {}
    columns = ("doc_id", "source_index", "host", "language", "dropped_by", "reason")
    for split, entry in run.files("judge", "verdicts").items():
        judged = read_table(run.store, entry, columns)
        if split in marks:
            judged = overlaid(judged, late_drops(read_table(run.store, marks[split])))
        judged = run.labels.join(judged, ["domain"])
        for row in group_counts(judged.select(_KEYS), _KEYS).to_pylist():
            found[Fate(*(row[name] for name in _KEYS))] += row["rows"]
    return found


def moves(before: Mapping[Fate, int], after: Mapping[Fate, int]) -> list[Move]:
    """Return every fate whose count differs, in a fixed order."""
    found = []
    for fate in sorted({*before, *after}, key=lambda one: (one.link is not None, *map(str, one))):
        was, now = before.get(fate, 0), after.get(fate, 0)
        if was != now:
            found.append(Move(fate.link or KEPT, fate.reason or "", fate.language, fate.domain, was, now))
    return found


def table(before: Mapping[Fate, int], after: Mapping[Fate, int]) -> Table:
    """Return what moved as a table for the terminal: all languages and domains together."""
    shown = Table(title="Documents by what became of them", title_justify="left", box=None, pad_edge=False)
    shown.add_column("")
    for name in ("before", "after", "change"):
        shown.add_column(name, justify="right")
    was, now = _by_reason(before), _by_reason(after)
    changed = [key for key in sorted({*was, *now}) if was[key] != now[key]]
    for is_dropped, link, reason in changed:
        key = (is_dropped, link, reason)
        name = clean(f"{link}/{reason}" if reason else link)
        shown.add_row(Text(name), f"{was[key]:,}", f"{now[key]:,}", f"{now[key] - was[key]:+,}")
    if not changed:
        shown.add_row(Text("nothing moved"), "", "", "")
    return shown


def _by_reason(counts: Mapping[Fate, int]) -> Counter[tuple[bool, str, str]]:
    found: Counter[tuple[bool, str, str]] = Counter()
    for fate, rows in counts.items():
        found[(fate.link is not None, fate.link or KEPT, fate.reason or "")] += rows
    return found
