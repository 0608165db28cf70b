"""Two runs side by side: what their recipes say otherwise, what each stage did in both, and which documents moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.inspection.funnel import Funnel, Report, report
from pipelines.inspection.verdicts import verdicts
from pipelines.planning.digests import Digests
from pipelines.recipe import Recipe
from pipelines.run import Run
from pipelines.tables import group_counts
from pipelines.workspace import resolved

KEPT: Final = "kept"
_FATE: Final = ("dropped_by", "reason", "failed")
_COLUMNS: Final = ("doc_id", "source_index", "host", "language", *_FATE)


class End(NamedTuple):
    """How a document ended in a run."""

    dropped_by: str | None
    reason: str | None
    failed: bool

    def words(self) -> str:
        """Return it as ``kept``, ``STAGE/REASON``, or ``STAGE/REASON (failed)``."""
        if self.dropped_by is None:
            return KEPT
        return f"{self.dropped_by}/{self.reason}" + (" (failed)" if self.failed else "")


class Move(NamedTuple):
    """What became of documents in both runs; language and domain are those of the first."""

    before: End
    after: End
    language: str
    domain: str


@dataclass(frozen=True)
class Comparison:
    """Two runs.

    Attributes:
        changed: the keys of the recipe that differ: (key, value in the first run, value in the second one).
        before: what the first run counted.
        after: what the second one counted.
        counts_only: why documents are not compared one by one, None where they are.
        moved: documents with another end in the second run.
        same: documents with the same end in both.
    """

    changed: tuple[tuple[str, Any, Any], ...]
    before: Report
    after: Report
    counts_only: str | None
    moved: Mapping[Move, int]
    same: int

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        moved = [
            {
                "before": one.before._asdict(),
                "after": one.after._asdict(),
                "language": one.language,
                "domain": one.domain,
                "documents": rows,
            }
            for one, rows in self.moved.items()
        ]
        found: dict[str, Any] = {
            "changed": [{"key": key, "before": before, "after": after} for key, before, after in self.changed],
            "stages": _sides(self.before.stages, self.after.stages),
        }
        for name in ("languages", "domains"):
            groups: tuple[Mapping[str, Funnel], ...] = getattr(self.before, name), getattr(self.after, name)
            found[name] = {
                one: _sides(*(group.get(one, ()) for group in groups)) for one in sorted({*groups[0], *groups[1]})
            }
        if self.counts_only is not None:
            return {**found, "counts_only": self.counts_only}
        return {**found, "same": self.same, "moved": moved}


def _sides(before: Funnel, after: Funnel) -> list[dict[str, Any]]:
    sides = {link.name: link.to_json() for link in before}, {link.name: link.to_json() for link in after}
    return [{"name": name, "before": sides[0].get(name), "after": sides[1].get(name)} for name in links(before, after)]


def links(before: Funnel, after: Funnel) -> list[str]:
    """Return the links of two funnels, each after those that come before it in either."""
    names = [link.name for link in before]
    at = 0
    for link in after:
        if link.name not in names:
            names.insert(at, link.name)
        at = names.index(link.name) + 1
    return names


def compare(first: Run, second: Run) -> Comparison:
    """Compare two runs that have every verdict.

    Documents are compared one by one where both runs read the same bytes under the same numbers; two splits are held at
    a time.
    """
    changed = tuple(_changed(_plain(first.recipe), _plain(second.recipe)))
    before, after = report(first), report(second)
    why = unlike_sources(first, second)
    fates: Counter[Move] = Counter()
    if why is None:
        try:
            for table in _beside(first, second):
                _add(fates, table)
        except _UnlikeRecordsError:
            why, fates = "the same sources gave other records, as the recipes read them otherwise", Counter()
    moved = {one: rows for one, rows in sorted(fates.items(), key=_order) if one.before != one.after}
    return Comparison(changed, before, after, why, moved, fates.total() - sum(moved.values()))


def _order(item: tuple[Move, int]) -> Any:
    move, rows = item
    return -rows, move.before.words(), move.after.words(), move.language, move.domain


def unlike_sources(first: Run, second: Run) -> str | None:
    """Return why the documents of two runs do not have the same numbers; None where they have."""
    runs = first, second
    rows = first.plan.splits.rows, second.plan.splits.rows
    if len(rows[0]) != len(rows[1]):
        return f"one run reads {len(rows[0])} sources, the other {len(rows[1])}"
    if (rows[0] != rows[1]).any():
        return "their sources have other numbers, as files were added in another order"
    spans = [[run.plan.sources.column(name).take(pa.array(rows[0])) for name in ("begin", "end")] for run in runs]
    if not all(one.equals(other) for one, other in zip(*spans, strict=True)):
        return "their sources are other files, or cut into other spans"
    for at, (one, other) in enumerate(zip(_paths(first), _paths(second), strict=True)):
        # A corpus that was copied whole has its paths, relative to another folder.
        if one != other and resolved(first.workspace.base, one) != resolved(second.workspace.base, other):
            return f"source {rows[0][at]} is {one} in one run, {other} in the other"
    digests = [Digests.load(run.store).of(rows[0].tolist()) for run in runs]
    for at, (known, found) in enumerate(zip(*digests, strict=True)):
        if known is None or known != found:
            return f"source {rows[0][at]}, {first.plan.path_of(int(rows[0][at]))}, is not the same bytes in both"
    return None


def _paths(run: Run) -> list[str]:
    paths: list[str] = run.plan.sources.column("path").take(pa.array(run.plan.splits.rows)).to_pylist()
    return paths


class _UnlikeRecordsError(Exception):
    """The records of the same sources are not the same."""


def _beside(first: Run, second: Run) -> Iterator[pa.Table]:
    """Yield what became of the same documents in both runs, however each cut its sources into splits."""
    sides = verdicts(first, _COLUMNS), verdicts(second, _COLUMNS)
    held: list[pa.Table | None] = [None, None]
    while True:
        for at, side in enumerate(sides):
            while held[at] is None or not held[at].num_rows:  # type: ignore[union-attr]
                held[at] = next(side, None)
                if held[at] is None:
                    break
        one, other = held
        if one is None or other is None:
            if one is not other:
                raise _UnlikeRecordsError
            return
        rows = min(one.num_rows, other.num_rows)
        mine, theirs = one.slice(0, rows), other.slice(0, rows)
        if not pc.all(pc.equal(mine.column("doc_id"), theirs.column("doc_id"))).as_py():
            raise _UnlikeRecordsError
        held = [one.slice(rows), other.slice(rows)]
        columns = {name: mine.column(name) for name in (*_FATE, "language", "domain")}
        yield pa.table(columns | {f"after_{name}": theirs.column(name) for name in _FATE})


def _add(fates: Counter[Move], table: pa.Table) -> None:
    for row in group_counts(table, table.column_names).to_pylist():
        before, after = (End(*(row[prefix + name] for name in _FATE)) for prefix in ("", "after_"))
        fates[Move(before, after, row["language"], row["domain"])] += row["rows"]


def _plain(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain values, stages by their names in the chain: keys as ``KEY=VALUE`` has them."""
    found = recipe.model_dump(mode="json", by_alias=True)
    uses = {use.link: use.model_dump(mode="json", by_alias=True, exclude={"instance"}) for use in recipe.stages}
    del found["stages"]
    return {**found, **uses}


def _changed(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping) and (before or after):
        for name in dict.fromkeys([*before, *after]):
            yield from _changed(before.get(name), after.get(name), f"{key}.{name}" if key else str(name))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and _are_tables(before, after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _changed(one, other, f"{key}.{place}")
    elif before != after:
        yield key, before, after


def _are_tables(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return len(before) == len(after) and all(isinstance(one, Mapping) for one in (*before, *after))
