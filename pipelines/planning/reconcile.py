"""What a recipe names against what the folder knows: known files must be as they were, fresh ones come after them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.planning.digests import Digests
from pipelines.planning.discover import MISSING, UNNAMED, Finds
from pipelines.planning.globs import remote_glances
from pipelines.planning.places import is_uri
from pipelines.planning.probe import changed, probe_checksum, span_digest, spread
from pipelines.planning.seen import Seen
from pipelines.planning.sources import MAX_SOURCES, SOURCES, KnownFiles, SourceTable, checksums_as_array, unlike
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.files import open_input
from stages.readers.base import OpenInput

_NAMED: Final = 3
"""So many files are named in a message."""

Int64s = npt.NDArray[np.int64]


class SpanLike(Protocol):
    """Bytes [begin, end) of a file."""

    @property
    def begin(self) -> int:
        """The first byte."""

    @property
    def end(self) -> int:
        """The byte after the last."""


Cut = Callable[[str, int, int, str, OpenInput], Sequence[SpanLike]]
"""Cuts a file: (path, size in bytes, target in bytes, format, open_input) to spans that cover it, one after another."""


@dataclass(frozen=True)
class _Span:
    begin: int
    end: int


def whole(path: str, size: int, target_bytes: int, source_format: str, open_input: OpenInput) -> Sequence[SpanLike]:
    """Return a file as one span."""
    return (_Span(0, size),)


@dataclass(frozen=True)
class Reconciled:
    """The sources of a run.

    Attributes:
        sources: every source that the folder knows from now on.
        active: rows of those that the run reads, int32, ascending.
        settings: position of the ``[[sources]]`` table of each, int32.
        seen: what the file system says of the files that it reads.
        left_out: names that are not read, and why.
    """

    sources: SourceTable
    active: npt.NDArray[np.int32]
    settings: npt.NDArray[np.int32]
    seen: Seen
    left_out: dict[str, str]


def reconcile(
    workspace: Workspace, known: SourceTable, finds: Finds, digests: Digests, seen: Seen, cut: Cut
) -> Reconciled:
    """Find each named file among the known ones, or add it after them.

    Raises:
        UserError: if a known file has changed, or is gone without ``leave_out_missing``.
    """
    files, base = known.files(), workspace.base
    keys = known.keys(base)
    # For each file that was found, its number among the known files; -1 for a fresh one.
    at = pc.index_in(finds.keys(base), value_set=keys).fill_null(-1).to_numpy()
    left_out = finds.left_out | _require_there(workspace, files, at)
    _require_size(workspace, known, files, finds, at)
    checksums = _probes(workspace, finds)
    _require_unchanged(workspace, known, files, finds, at, checksums)
    _require_digests(workspace, known, files, finds, at, digests, seen)
    _require_format(workspace, known, files, finds, at)
    fresh = np.flatnonzero(at < 0)
    table, counts = _fresh_rows(workspace, len(known), finds, fresh, checksums, cut)
    first, rows = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
    first[at >= 0], rows[at >= 0] = files.first[at[at >= 0]], files.rows[at[at >= 0]]
    first[fresh], rows[fresh] = len(known) + np.cumsum(counts) - counts, counts
    order = np.argsort(first)
    first, rows = first[order], rows[order]
    within = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    return Reconciled(
        sources=known.with_rows(table),
        active=(np.repeat(first, rows) + within).astype(np.int32),
        settings=np.repeat(finds.settings[order], rows).astype(np.int32),
        seen=Seen(first, finds.glances[order]),
        left_out=left_out,
    )


def _require_there(workspace: Workspace, files: KnownFiles, at: Int64s) -> dict[str, str]:
    """Return the known files that are not read: gone, or no longer named by the recipe."""
    absent = np.ones(len(files), np.bool_)
    absent[at[at >= 0]] = False
    paths: list[str] = files.paths.filter(pa.array(absent)).to_pylist()
    there = [found for part in spread(lambda chunk: _are_there(workspace, chunk), paths) for found in part]
    left_out = {path: UNNAMED if found else MISSING for path, found in zip(paths, there, strict=True)}
    gone = sorted(path for path, why in left_out.items() if why == MISSING)
    if gone and not workspace.recipe.leave_out_missing:
        raise UserError(
            f"{_counted(gone)} that an earlier run of this folder read cannot be found",
            place=f"{workspace.store.root}, looked in {workspace.base}",
            remedy="Put back what is missing, or set leave_out_missing = true to go on without its documents",
        )
    return left_out


def _are_there(workspace: Workspace, paths: Sequence[str]) -> list[bool]:
    uris = [path for path in paths if is_uri(path)]
    remote = dict(zip(uris, remote_glances(uris), strict=True))
    return [
        remote[path] is not None if is_uri(path) else os.path.isfile(os.path.join(workspace.base, path))
        for path in paths
    ]


def _counted(paths: Sequence[str]) -> str:
    named = ", ".join(repr(path) for path in paths[:_NAMED])
    if len(paths) == 1:
        return f"the source {named}"
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return f"{len(paths)} sources ({named}{more})"


def _refuse_first(workspace: Workspace, finds: Finds, those: Int64s) -> None:
    if len(those):
        raise changed(finds.paths[int(those[0])], workspace.store.root, len(those) - 1)


def _require_size(workspace: Workspace, known: SourceTable, files: KnownFiles, finds: Finds, at: Int64s) -> None:
    old = np.flatnonzero(at >= 0)
    sizes = known.column("size").to_numpy()[files.first[at[old]]]
    _refuse_first(workspace, finds, old[sizes != finds.glances[old, 0]])


def _probes(workspace: Workspace, finds: Finds) -> pa.Array:
    """Return the ``probe_checksum`` of every file."""

    def probe(chunk: Sequence[int]) -> list[str]:
        return [probe_checksum(workspace.input_path(finds.paths[at]), int(finds.glances[at, 0])) for at in chunk]

    return checksums_as_array([checksum for part in spread(probe, range(len(finds.paths))) for checksum in part])


def _require_unchanged(
    workspace: Workspace, known: SourceTable, files: KnownFiles, finds: Finds, at: Int64s, checksums: pa.Array
) -> None:
    old = np.flatnonzero(at >= 0)
    before = known.column("checksum").take(pa.array(files.first[at[old]]))
    _refuse_first(workspace, finds, old[unlike(before, checksums.take(pa.array(old)))])


def _require_digests(
    workspace: Workspace,
    known: SourceTable,
    files: KnownFiles,
    finds: Finds,
    at: Int64s,
    digests: Digests,
    seen: Seen,
) -> None:
    """Hash again what was read before and has been touched since: the probes miss a change between them."""
    old = np.flatnonzero(at >= 0)
    touched = old[~seen.untouched(files.first[at[old]], finds.glances[old])]
    owners, rows = _rows_of(files, at, touched)
    read = digests.known(rows)
    owners, rows = owners[read], rows[read]
    begins, ends = (known.column(name).take(pa.array(rows)).to_pylist() for name in ("begin", "end"))

    def differs(chunk: Sequence[int]) -> list[bool]:
        (one,) = chunk
        path = workspace.input_path(finds.paths[int(owners[one])])
        return [digests.of([int(rows[one])]) != [span_digest(path, begins[one], ends[one])]]

    # One at a time to a thread: a file may be of any size.
    hits = [hit for part in spread(differs, range(len(rows)), chunk=1) for hit in part]
    _refuse_first(workspace, finds, np.unique(owners[np.array(hits, np.bool_)]))


def _rows_of(files: KnownFiles, at: Int64s, those: Int64s) -> tuple[Int64s, Int64s]:
    """Return (number of the find, row of the source table) of every row of some finds."""
    counts = files.rows[at[those]]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(those, counts), np.repeat(files.first[at[those]], counts) + within


def _require_format(workspace: Workspace, known: SourceTable, files: KnownFiles, finds: Finds, at: Int64s) -> None:
    """Refuse to read spans as another format than the one for which they were cut."""
    old = np.flatnonzero((at >= 0) & (files.rows[np.maximum(at, 0)] > 1 if len(files) else False))
    cut_as = known.column("cut_as").take(pa.array(files.first[at[old]])).to_pylist()
    for number, before in zip(old.tolist(), cut_as, strict=True):
        position = int(finds.settings[number])
        if (declared := workspace.recipe.sources[position].format) != before:
            raise UserError(
                f"the source {finds.paths[number]!r} was cut into spans as format {before!r}, and is now {declared!r}",
                place=f"recipe, key sources.{position}.format",
                remedy="Keep the format, or use a new --out folder",
            )


def _fresh_rows(
    workspace: Workspace, following: int, finds: Finds, fresh: Int64s, checksums: pa.Array, cut: Cut
) -> tuple[pa.Table, Int64s]:
    """Return the rows of fresh files, large ones cut into spans, and how many each has."""
    recipe = workspace.recipe
    sizes = finds.glances[fresh, 0]
    counts = np.ones(len(fresh), np.int64)
    spans: dict[int, Sequence[SpanLike]] = {}
    for number in np.flatnonzero(sizes > recipe.span_bytes).tolist():
        find, size = int(fresh[number]), int(sizes[number])
        form = recipe.sources[int(finds.settings[find])].format
        path = workspace.input_path(finds.paths[find])
        # Even ones: the last of a file is no remnant.
        target = -(-size // -(-size // recipe.span_bytes))
        found = cut(path, size, target, form, open_input)
        _require_cover(path, size, found)
        if len(found) > 1:
            spans[number], counts[number] = found, len(found)
    if following + int(counts.sum()) > MAX_SOURCES:
        raise UserError(f"there are more than {MAX_SOURCES} sources", remedy="Divide them among several runs")
    owners = np.repeat(np.arange(len(fresh)), counts)
    begin, end = np.zeros(len(owners), np.int64), sizes[owners]
    starts = np.cumsum(counts) - counts
    cut_as: list[str | None] = [None] * len(owners)
    for number, found in spans.items():
        inside = slice(int(starts[number]), int(starts[number]) + len(found))
        begin[inside], end[inside] = [span.begin for span in found], [span.end for span in found]
        cut_as[inside] = [recipe.sources[int(finds.settings[fresh[number]])].format] * len(found)
    finds_of = fresh[owners]
    columns = [
        pa.array(following + np.arange(len(owners)), pa.int32()),
        pa.array((finds.paths[find] for find in finds_of.tolist()), pa.string()),
        pa.array(begin),
        pa.array(end),
        pa.array(sizes[owners]),
        checksums.take(pa.array(finds_of)),
        pa.array(cut_as, pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SOURCES), counts


def _require_cover(path: str, size: int, spans: Sequence[SpanLike]) -> None:
    edges = [0, *(span.end for span in spans)]
    if edges[-1] != size or [span.begin for span in spans] != edges[:-1] or any(np.diff(edges) <= 0):
        raise AssertionError(f"the spans of {path} do not cover it one after another")
