"""The plan of a run: which sources it reads, and how they are cut into splits. Nothing of their content is judged here.

The source table is append-only: a file keeps its indices for the life of a run's folder, so doc_ids stay true when
files are added. A split is named by its position and the digest of its sources, so files added later leave finished
splits alone. Files that the folder knows must be what they were. ``pipelines.planning`` has the parts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.planning import discover, seal
from pipelines.planning.digests import Digests
from pipelines.planning.discover import LEFT_OUT
from pipelines.planning.reconcile import Cut, reconcile, whole
from pipelines.planning.seen import Seen
from pipelines.planning.sources import SOURCES, PlannedSource, SourceTable
from pipelines.planning.splits import SPLITS, Split, Splits, make_splits
from pipelines.workspace import Workspace
from shards.errors import IncompleteError, UserError
from shards.store import Store

__all__ = ["Cut", "Plan", "PlannedSource", "Split", "load_plan", "load_sources", "make_plan", "save_plan"]

PLAN_FILE = "plan/plan.json"
_FORMAT = 2
# Parts of a table, in rows: none outgrows an element, and adding files writes the last one of the sources again.
_PART_SOURCES = 1 << 16
_PART_SPLITS = 1 << 12


class Plan:
    """The splits of a run in order, and every source that its folder knows.

    Attributes:
        sources: every source that the folder knows, read or not.
        splits: the splits, each built when it is asked for.
        left_out: names that are not read and why, as ``LEFT_OUT``, sorted by name.
        seen: what the file system said of the sources; known to the process that planned only.
    """

    def __init__(
        self, sources: SourceTable, splits: Splits, left_out: pa.Table | None = None, seen: Seen | None = None
    ) -> None:
        self.sources, self.splits, self.seen = sources, splits, seen
        self.left_out = LEFT_OUT.empty_table() if left_out is None else left_out.combine_chunks()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Plan)
            and (self.splits, self.sources) == (other.splits, other.sources)
            and bool(self.left_out.equals(other.left_out))
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """Bytes of input."""
        return sum(self.splits.sizes)

    @functools.cached_property
    def by_name(self) -> Mapping[str, Split]:
        """The splits by name."""
        return _ByName(self.splits)

    def path_of(self, index: int) -> str:
        """Return the path of a source that the folder knows."""
        path: str = self.sources.column("path")[index].as_py()
        return path

    def split_of(self, index: int) -> str | None:
        """Return the name of the split that a source is in, None for one that the run does not read."""
        rows = self.splits.rows
        at = int(np.searchsorted(rows, index))
        return self.splits.names[int(self.splits.of_rows[at])] if at < len(rows) and rows[at] == index else None

    def totals(self, tables: int) -> list[tuple[int, int]]:
        """Return (files, bytes of input) of each of the recipe's ``[[sources]]`` tables, of which there are so many."""
        rows, settings = self.splits.rows, self.splits.settings
        files = np.bincount(settings[self.sources.column("begin").to_numpy()[rows] == 0], minlength=tables)
        # Not bincount, whose weights are floats: bytes are exact.
        sizes = np.zeros(tables, np.int64)
        np.add.at(sizes, settings, self.sources.span_bytes[rows])
        return list(zip(files.tolist(), sizes.tolist(), strict=True))

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """Yield (path, bytes of input, position of its settings) of every source that the run reads."""
        for start in range(0, len(self.splits.rows), _PART_SOURCES):
            inside = slice(start, start + _PART_SOURCES)
            taken = self.splits.rows[inside]
            paths = self.sources.column("path").take(pa.array(taken)).to_pylist()
            sizes, settings = self.sources.span_bytes[taken].tolist(), self.splits.settings[inside].tolist()
            yield from zip(paths, sizes, settings, strict=True)


class _ByName(Mapping[str, Split]):
    def __init__(self, splits: Splits) -> None:
        self._splits = splits
        self._at = {name: at for at, name in enumerate(splits.names)}

    def __getitem__(self, name: str) -> Split:
        return self._splits[self._at[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)


def make_plan(
    workspace: Workspace,
    known: SourceTable | None = None,
    digests: Digests | None = None,
    cut: Cut = whole,
) -> Plan:
    """Find the recipe's files and cut them into splits. Writes nothing.

    Args:
        workspace: the recipe and its folders.
        known: every source that the run's folder knows; by default what is saved there.
        digests: those of sources read before; by default what is saved there.
        cut: cuts a file that is larger than the recipe's ``span_bytes``.

    Raises:
        UserError: if a glob matches nothing, a list names what is not there, a file that an earlier run of this folder
            read has changed, or one is gone and the recipe does not leave it out.
    """
    known = load_sources(workspace.store) if known is None else known
    try:
        finds = discover.discover(workspace.recipe, workspace.base, known.keys(workspace.base), workspace.store.root)
        digests = Digests.load(workspace.store) if digests is None else digests
        found = reconcile(workspace, known, finds, digests, Seen.load(workspace.store), cut)
    except OSError as error:
        raise UserError(
            f"a source cannot be read: {error.strerror or error}",
            place=str(error.filename or workspace.base),
            remedy="Make it readable, or leave it out of the recipe's sources",
        ) from error
    if not len(found.active):
        raise UserError("no source is left to read", place="recipe, key sources", remedy="Name some")
    splits = make_splits(found.sources, found.active, found.settings, workspace.recipe)
    rows = sorted(found.left_out.items())
    left_out = pa.table({"path": [path for path, _ in rows], "why": [why for _, why in rows]}, schema=LEFT_OUT)
    return Plan(found.sources, splits, left_out, found.seen)


def save_plan(store: Store, plan: Plan, known: SourceTable) -> None:
    """Save a plan, with every source ever known to this folder. Only for the one driver of a run.

    Args:
        store: the run's folder.
        plan: what ``make_plan`` made.
        known: the sources that the folder knows now.

    Raises:
        UserError: if they are not those on which the plan was made: another run may have come between.
    """
    if not plan.sources.begins_with(known):
        raise UserError(
            "another run has added sources to this folder since this one was planned",
            place=store.root,
            remedy="Run the recipe again",
        )
    sources = seal.write_parts(store, "sources", _parts(plan.sources.table, _PART_SOURCES), twice=True)
    splits = seal.write_parts(store, "splits", _parts(plan.splits.table, _PART_SPLITS))
    left_out = seal.write_parts(store, "left_out", _parts(plan.left_out, _PART_SOURCES))
    value = {"format": _FORMAT, "sources": sources, "splits": splits, "left_out": left_out}
    seal.write_sealed(store, PLAN_FILE, value)
    for kind, entries in (("sources", sources), ("splits", splits), ("left_out", left_out)):
        seal.delete_others(store, kind, entries)
    if plan.seen is not None:
        plan.seen.save(store)


def _parts(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    return (table.slice(start, rows) for start in range(0, len(table), rows))


def load_sources(store: Store) -> SourceTable:
    """Return every source known to a run's folder; none in a new folder.

    Raises:
        IncompleteError: if the table is not what was written.
    """
    index = _index(store)
    return SourceTable() if index is None else SourceTable(seal.read_parts(store, index["sources"], SOURCES))


def load_plan(store: Store) -> Plan:
    """Return a run's plan.

    Raises:
        IncompleteError: if it is missing, or not what was written.
    """
    if (index := _index(store)) is None:
        raise IncompleteError(f"{PLAN_FILE} is missing", place=store.root, remedy="Run the recipe again")
    sources = SourceTable(seal.read_parts(store, index["sources"], SOURCES))
    splits = Splits(seal.read_parts(store, index["splits"], SPLITS), sources)
    return Plan(sources, splits, seal.read_parts(store, index["left_out"], LEFT_OUT))


def _index(store: Store) -> dict[str, Any] | None:
    index = seal.read_sealed(store, PLAN_FILE)
    if index is not None and index["format"] != _FORMAT:
        raise UserError(
            f"the plan in this folder is of format {index['format']}, which this version does not read",
            place=store.root,
            remedy="Use a new --out folder",
        )
    return index
