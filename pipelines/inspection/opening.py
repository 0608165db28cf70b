"""What ``headrace explain`` opens: a recipe or a run, and the file whose documents are explained."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.chain import build_chain, build_edits, fitted_languages
from pipelines.inspection.explain import Explained, Explainer
from pipelines.late import CUTS, measures_of
from pipelines.planning.globs import matches
from pipelines.planning.labels import LabelRules
from pipelines.planning.places import file_name, is_uri, key_of, spelled
from pipelines.planning.sources import PlannedSource
from pipelines.reading import reading_of, source_at, source_of
from pipelines.recipe import Recipe, SourceSettings, changed_recipe, load_recipe
from pipelines.run import Run
from pipelines.tables import read_table
from pipelines.workspace import RECIPE_FILE, RUN_FILE, Workspace, resolved
from shards.errors import IncompleteError, UserError
from shards.files import open_input
from shards.finished import DIGESTS_FILE
from shards.sealed import read_sealed
from shards.store import Store
from stages import readers
from stages.base import link_of
from stages.readers.base import OpenInput, Source

STDIN: Final = "-"
MOST_STDIN_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Opened:
    """A recipe, alone or with the run that was made by it.

    Attributes:
        workspace: the recipe, and the folder that its paths are relative to.
        run: the run, as far as it has come; None for a recipe alone.
        explainer: takes documents through its chain.
        notes: what cannot be shown, for people.
    """

    workspace: Workspace
    run: Run | None
    explainer: Explainer
    notes: tuple[str, ...]


def open_chain(place: str, overrides: Sequence[str] = ()) -> Opened:
    """Open a recipe file or a run's folder.

    Raises:
        UserError: if it is neither, or anything that it names is wrong.
    """
    if Path(place).is_file():
        workspace = Workspace(Store("."), load_recipe(place, overrides), str(Path(place).absolute().parent))
        return _opened(workspace, None, workspace.recipe)
    if not is_uri(place) and not Path(place).is_dir():
        raise UserError("there is no such recipe or run", place=place, remedy="Name a recipe file, or a run's folder")
    saved = Workspace.open(place)
    run = Run(saved, "", _digests(saved.store))
    recipe = changed_recipe(saved.recipe, overrides, f"{place}/{RECIPE_FILE}") if overrides else saved.recipe
    return _opened(replace(saved, recipe=recipe), run, saved.recipe)


def _digests(store: Store) -> dict[str, str]:
    """Return the digests of the passes that are finished, also of a run that is not."""
    if store.exists(DIGESTS_FILE):
        return dict(read_sealed(store, DIGESTS_FILE))
    return dict(read_sealed(store, RUN_FILE)["digests"]) if store.exists(RUN_FILE) else {}


def _opened(workspace: Workspace, run: Run | None, measured: Recipe) -> Opened:
    """Build the chain, with what a run has fitted and measured.

    Args:
        workspace: the recipe that is asked about.
        run: the run, if any.
        measured: the recipe by which the run measured its limits.
    """
    fitted: dict[str, str] = {}
    if run is not None and run.has("fit_lm"):
        models = run.files("fit_lm", "model")
        fitted = {language: str(run.store.local_copy(entry)) for language, entry in models.items()}
    languages = frozenset(one.language for one in fitted_languages(workspace.recipe)) - fitted.keys()
    # No document is shown to a model that is still to be fitted: it has a language, and no path.
    known = {one.language: fitted.get(one.language, "") for one in fitted_languages(workspace.recipe)}
    chain, edits = tuple(build_chain(workspace, known)), tuple(build_edits(workspace, known))
    unfitted = {link_of(stage): languages for stage in (*chain, *edits) if "" in stage.files()}
    for stage in (*chain, *edits):
        stage.check_files()
    cuts = None
    if run is not None and run.has("decide"):
        cuts = _unchanged(read_table(run.store, run.files("decide", "cuts")["all"]), workspace, measured)
    notes = [
        f"the models of {', '.join(sorted(languages))} are still to be fitted by a run: {link} shows no score in them"
        for link in unfitted
    ]
    if measures_of(chain) and cuts is None:
        notes.append("percentiles are measured by a run: name its folder instead of the recipe to see their limits")
    if cuts is not None and cuts.num_rows and workspace.recipe != measured:
        notes.append("percentiles are those that the run measured, with its own limits")
    labels = LabelRules.of(workspace.recipe).labels([])
    reading = reading_of(workspace.recipe.sources)
    return Opened(workspace, run, Explainer(reading, chain, labels, cuts, unfitted, edits=edits), tuple(notes))


def _unchanged(cuts: pa.Table, workspace: Workspace, measured: Recipe) -> pa.Table | None:
    """Return the cuts of those limits that the recipe still has as they were measured."""
    pending = dict.fromkeys((one.language for one in fitted_languages(measured)), "")
    before = {one.key: one.limit for one in measures_of(build_chain(replace(workspace, recipe=measured), pending))}
    now = {one.key: one.limit for one in measures_of(build_chain(workspace, pending))}
    same = {key for key, limit in now.items() if before.get(key) == limit}
    rows = [row for row in cuts.to_pylist() if (row["link"], row["check"], row["end"]) in same]
    return pa.Table.from_pylist(rows, CUTS) if now.keys() <= same else None


def documents(
    opened: Opened, file: str, stdin: BinaryIO, position: int | None = None, limit: int | None = None
) -> Iterator[Explained]:
    """Yield the documents of a file, explained, a reader's batch at a time.

    Args:
        opened: the recipe, or the run.
        file: a path or URI, or ``-`` for ``stdin``.
        stdin: what ``-`` means.
        position: of the ``[[sources]]`` table whose settings apply; None for that of a run's own source, else of the
            first whose glob matches, else the first.
        limit: how many records at most; None for all.

    Raises:
        UserError: if the file cannot be opened, or there is no such table.
    """
    recipe, planned = opened.workspace.recipe, _planned(opened, file)
    if position is None:
        position = planned[0].settings if planned else _position(opened.workspace, file)
    if not 0 <= position < len(recipe.sources):
        last = len(recipe.sources) - 1
        raise UserError(f"the recipe has no sources.{position}", place="--source", remedy=f"Name one of 0 to {last}")
    reading = reading_of([recipe.sources[position]])
    explainer = replace(opened.explainer, reading=reading, has_doc_ids=bool(planned))
    with _input(file, stdin) as opener:
        for source, batch in _batches(_sources(planned, recipe.sources[position], file), opener, limit):
            labels = LabelRules.of(recipe).labels([(source.index, 1, position)])
            yield from replace(explainer, labels=labels).explain(batch)


def _batches(
    sources: Iterable[Source], opener: OpenInput, limit: int | None
) -> Iterator[tuple[Source, pa.RecordBatch]]:
    """Yield what readers give, up to so many records: those beyond are not judged for nothing."""
    left = sys.maxsize if limit is None else limit
    for source in sources:
        for batch in readers.read(source, opener):
            if left > 0:
                yield source, batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


def _sources(planned: Sequence[PlannedSource], settings: SourceSettings, file: str) -> Iterator[Source]:
    if not planned:
        yield source_at(0, settings, file)
    for one in planned:
        yield source_of(one, settings, file)


@contextlib.contextmanager
def _input(file: str, stdin: BinaryIO) -> Iterator[OpenInput]:
    if file != STDIN:
        try:
            open_input(file).close()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UserError(f"the file cannot be opened: {why}", place=file, remedy="Fix its path") from error
        yield open_input
        return
    with tempfile.TemporaryFile() as spooled:
        size = 0
        while piece := stdin.read(_PIECE_BYTES):
            size += len(piece)
            if size > MOST_STDIN_BYTES:
                raise UserError(
                    f"standard input holds more than {MOST_STDIN_BYTES >> 20} MiB",
                    remedy="Name the file, which is read piece by piece, or send its beginning",
                )
            spooled.write(piece)
        spooled.seek(0)
        yield lambda _: cast(BinaryIO, spooled)


def _planned(opened: Opened, file: str) -> list[PlannedSource]:
    """Return the sources of a run that a file is, in order; none if it is not one of them."""
    if opened.run is None or file == STDIN:
        return []
    try:
        plan = opened.run.plan
    except IncompleteError:
        return []
    base = opened.workspace.base
    absolute = file if is_uri(file) else os.path.abspath(file)
    names = pa.array(sorted({spelled(file), spelled(absolute), key_of(absolute, base)}), pa.string())
    paths = plan.sources.column("path")
    found = []
    for index in np.flatnonzero(pc.is_in(paths, value_set=names).to_numpy(zero_copy_only=False)).tolist():
        if resolved(base, paths[index].as_py()) != resolved(os.getcwd(), file):
            continue
        if (split := plan.split_of(index)) is not None:
            found += [one for one in plan.by_name[split].sources if one.index == index]
    return found


def _position(workspace: Workspace, file: str) -> int:
    """Return the position of the ``[[sources]]`` table that a file is most likely of."""
    path = spelled(resolved(os.getcwd(), file))
    for parts in (path.split("/"), [file_name(path)]):
        for position, settings in enumerate(workspace.recipe.sources):
            for glob in settings.globs:
                wanted = spelled(resolved(workspace.base, glob)).split("/")
                if matches(parts, wanted if len(parts) > 1 else wanted[-1:]):
                    return position
    return 0
