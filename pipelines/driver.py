"""The driver: takes a recipe through all its passes, each skipped when its digest is unchanged and its output whole.

plan -> fit lm -> judge -> decide -> deduplicate -> fit tokeniser -> write -> resolve schedule -> (train)
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from pipelines import cost_files
from pipelines.beam import meter
from pipelines.beam.base import ALL, BeamPass, DriverPass, Inputs, NothingLeftError, Pass
from pipelines.beam.runners import BeamRunner, LocalRunner
from pipelines.checking import carried_on, check, known_digests, with_digests
from pipelines.inspection.funnel import main_losses
from pipelines.passes.build import KINDS, build_passes
from pipelines.passes.drops import Drops
from pipelines.passes.judge import Judge
from pipelines.plan import Plan, load_sources, save_plan
from pipelines.progress import Reporter
from pipelines.run import Run
from pipelines.workspace import RUN_FILE, Job, Workspace, describe
from shards import lock
from shards.errors import IncompleteError, UserError
from shards.finished import DIGESTS_FILE
from shards.manifest import PassFolder
from shards.owner import owned
from shards.sealed import digest_of, read_sealed, write_sealed
from shards.store import UNFINISHED, Store

__all__ = ["check"]

TIMINGS_FILE = "timings.json"


def curate(
    workspace: Workspace,
    plan: Plan,
    runner: LocalRunner | BeamRunner,
    reporter: Reporter,
    last: str | None = None,
) -> Run:
    """Make every pass that is not finished, and return the run with all digests.

    Args:
        workspace: the run's.
        plan: its splits.
        runner: does the work.
        reporter: hears how far it is.
        last: the name of a pass: no pass that comes after its place is made.
    """
    store = workspace.store
    store.repairs = True
    workspace = carried_on(workspace)
    # From here on the folder is not finished, until the digests of all passes are known again.
    if store.exists(DIGESTS_FILE):
        store.delete(DIGESTS_FILE)
    run = Run(workspace, digest_of([describe(workspace.recipe), [split.name for split in plan.splits]]))
    workspace.take_over(run.key)
    save_plan(store, plan, load_sources(store))
    timings = elapsed(store)
    passes = build_passes(workspace, plan)
    for work in passes if last is None else _up_to(passes, last):
        started = time.monotonic()
        if make(work, run, runner, reporter):
            timings[work.name] = round(time.monotonic() - started, 3)
        run.note_progress()
        if work.name == Judge.name:
            # Again in a run that judged nothing: what is damaged of them, or of their copy, is whole afterwards.
            known_digests(store, plan.sources).save(store)
    run.require_own()
    _sweep(store, {work.name for work in passes})
    if last is not None:
        return run
    # Of passes that a kill ended right after their manifest.
    store.delete_folder(UNFINISHED)
    write_sealed(store, DIGESTS_FILE, run.digests)
    store.write_json(TIMINGS_FILE, {name: timings[name] for name in run.digests if name in timings})
    return run


def _up_to(passes: Sequence[Pass], last: str) -> list[Pass]:
    """Return the passes up to the place that ``last`` has among all there can be, whether or not it is there."""
    order = [kind.name for kind in KINDS]
    return [work for work in passes if order.index(work.name) <= order.index(last)]


def make(work: Pass, run: Run, runner: LocalRunner | BeamRunner, reporter: Reporter) -> bool:
    """Make one pass and return True, or skip it where its digest is unchanged and all its files are there."""
    inputs = Inputs(run, work.inputs)
    digest = work.digest(inputs)
    folder, units = PassFolder(run.store, work.name, digest, work.folders, work.foreign), work.units(inputs)
    survey = folder.survey()
    if survey.is_finished(units):
        folder.sweep(survey, units)
        reporter.begin(work.name, 0, 0, is_bytes=False)
        reporter.end("unchanged")
        run.add(work.name, digest)
        return False
    cost_files.fold(run.store, work.name, digest, units)
    pending = survey.pending(units)
    started = time.monotonic()
    try:
        _do(work, run.job(work.name, digest), inputs, _Progress(folder, reporter, work, inputs, pending), runner)
    except (OSError, MemoryError) as error:
        error.add_note(f"in pass {work.name}")
        raise
    except NothingLeftError as error:
        raise UserError(
            error.what,
            place=f"{run.root}: {main_losses(run)}",
            remedy=f"Read what was dropped with 'headrace inspect {run.root}', and change the recipe",
        ) from error
    run.require_own()
    # Before their unit files go with all that the pass keeps until it is finished.
    cost_files.fold(run.store, work.name, digest, units)
    folder.finish(units, functools.partial(_keep_digests, run) if isinstance(work, Judge) else None)
    run.add(work.name, digest)
    skipped = f", {len(units) - len(pending)} finished before" if len(pending) < len(units) else ""
    reporter.end(
        f"{len(pending)} unit{'' if len(pending) == 1 else 's'} in {time.monotonic() - started:.1f} s{skipped}"
    )
    return True


def _keep_digests(run: Run, parts: Iterable[pa.Table]) -> None:
    """Save the digests of all sources that were judged. Before the manifest is there: a kill must not lose them."""
    with_digests(run.store, run.plan.sources, parts).save(run.store)


def elapsed(store: Store) -> dict[str, float]:
    """Return the seconds that each pass took, where they are known; nobody depends on them."""
    try:
        value = store.read_json(TIMINGS_FILE)
    except IncompleteError:
        return {}
    seconds = value.items() if isinstance(value, dict) else ()
    return {name: float(took) for name, took in seconds if isinstance(took, int | float)}


class _Progress:
    """Counts what is finished of a pass, by one listing at a time."""

    def __init__(
        self, folder: PassFolder, reporter: Reporter, work: Pass, inputs: Inputs, pending: Sequence[str]
    ) -> None:
        self._folder, self._reporter, self.pending = folder, reporter, pending
        self._weights = work.weights(inputs) if isinstance(work, BeamPass) else {ALL: 1}
        self._total, self._waiting = sum(self._weights.values()), set(pending)
        reporter.begin(work.name, self._total, self._done, is_bytes=isinstance(work, BeamPass) and work.weighs_bytes)

    @property
    def _done(self) -> int:
        return self._total - sum(self._weights[unit] for unit in self._waiting)

    def poll(self) -> None:
        """Look at what has been marked since."""
        self._waiting -= self._folder.marked()
        self._reporter.advance(self._done)


def _do(work: Pass, job: Job, inputs: Inputs, progress: _Progress, runner: LocalRunner | BeamRunner) -> None:
    if isinstance(work, DriverPass) and progress.pending:
        with meter.measured(work.name):
            work.work(job, inputs)
    elif isinstance(work, BeamPass) and progress.pending:
        runner.run(work, job, inputs, progress.pending, progress.poll)


def _sweep(store: Store, wanted: Collection[str]) -> None:
    """Delete what is left of passes that the recipe no longer has, so that it is not mistaken for part of this run."""
    for kind in KINDS:
        if kind.name not in wanted:
            folders = (kind.name, f"{cost_files.FOLDER}/{kind.name}")
            paths = [path for folder in folders for path in store.list(folder)]
            paths += [path for path in kind.files if store.exists(path)]
            for path in paths:
                store.delete(path)


def judged_run(root: str) -> tuple[Run, bool]:
    """Return a run that has every verdict, to look into, and whether it is finished: tokens may still be missing.

    Raises:
        UserError: if there is no run, or its verdicts are not all there yet.
    """
    workspace = Workspace.open(root)
    return run_of(workspace, (Drops.name,)), workspace.store.exists(DIGESTS_FILE)


def run_of(workspace: Workspace, needed: Collection[str]) -> Run:
    """Return the run of a folder with the passes that are finished.

    Raises:
        UserError: if one of ``needed`` is not.
    """
    store = workspace.store
    digests: dict[str, str] = {}
    if store.exists(DIGESTS_FILE):
        digests = read_sealed(store, DIGESTS_FILE)
    elif store.exists(RUN_FILE):
        digests = read_sealed(store, RUN_FILE)["digests"]
    if not set(needed) <= digests.keys():
        raise _unfinished(store.root)
    return Run(workspace, digest_of([describe(workspace.recipe), digests]), digests)


def _unfinished(root: str) -> UserError:
    return UserError(
        "the run in this folder is not finished",
        place=root,
        remedy=f"Finish it: headrace run {root}; finished work is kept",
    )


@contextlib.contextmanager
def locked(workspace: Workspace) -> Iterator[None]:
    """Hold the folder for one driver or training at a time.

    Raises:
        UserError: if another process works there.
    """
    store = workspace.store
    path = store.local_path(lock.LOCK_FILE)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    with owned(store) if path is None else lock.locked(path, store.root):
        store.clear_scratch()
        try:
            yield
        finally:
            # Not what workers of a driver that was killed may still be writing, which the next one clears.
            with contextlib.suppress(OSError):
                store.clear_scratch()
