"""The driver: takes a recipe through all its passes, each skipped when its digest is unchanged and its output whole.

plan -> fit lm -> judge -> decide -> deduplicate -> fit tokeniser -> write -> resolve schedule -> (train)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pipelines.beam.base import DriverPass, Pass
from pipelines.beam.runners import BeamRunner, LocalRunner
from pipelines.chain import build_chain, fitted_languages, with_defaults
from pipelines.passes.decide import Decide
from pipelines.passes.drops import Drops
from pipelines.passes.exact import Exact, ExactRanges
from pipelines.passes.fit_lm import FitLm, reference_files
from pipelines.passes.judge import Judge
from pipelines.passes.near import Near, NearCandidates, NearPairs, NearSets, NearVerify
from pipelines.passes.schedule import ResolveSchedule
from pipelines.passes.tokenizer import FitTokenizer, check_tokenizer
from pipelines.passes.write import Catalog, Write
from pipelines.plan import Plan, load_sources, make_plan, save_plan
from pipelines.progress import Reporter
from pipelines.recipe import Recipe
from pipelines.workspace import RUN_FILE, Run, Workspace, describe
from shards import lock
from shards.errors import UserError
from shards.finished import DIGESTS_FILE
from shards.manifest import digest_of
from shards.store import fetch

PASSES: tuple[Pass, ...] = (
    FitLm(),
    Judge(),
    Decide(),
    ExactRanges(),
    Exact(),
    NearPairs(),
    NearCandidates(),
    NearSets(),
    NearVerify(),
    Near(),
    Drops(),
    FitTokenizer(),
    Write(),
    Catalog(),
    ResolveSchedule(),
)
TIMINGS_FILE = "timings.json"


def check(workspace: Workspace) -> Plan:
    """Check everything that a recipe names, before any document is read, and plan the splits.

    Raises:
        UserError: for the first thing that is wrong.
    """
    recipe = workspace.recipe
    _check_names(recipe)
    for position, lm in enumerate(recipe.lm):
        if lm.corpus:
            reference_files(workspace, lm.corpus, f"recipe, key lm.{position}.corpus")
        elif not fetch(workspace.input_path(lm.model or "")).is_file():
            raise UserError(
                f"the language model {lm.model!r} is missing",
                place=f"recipe, key lm.{position}.model, looked in {workspace.base}",
                remedy="Train one with 'headrace lm train', or name reference text with 'corpus'",
            )
    # Models still to be fitted have no file yet: their language is known, their path is not.
    pending = {lm.language for lm in fitted_languages(recipe)}
    for stage in build_chain(workspace, dict.fromkeys(pending, "")):
        for path in stage.files():
            if path and not fetch(path).is_file():
                raise UserError(
                    f"the file {path!r} is missing", place=f"recipe, stage {stage.name}", remedy="Mend its path"
                )
        stage.prepare()
    check_tokenizer(workspace)
    return make_plan(workspace, load_sources(workspace.store))


def _check_names(recipe: Recipe) -> None:
    """Refuse names that mean nothing: a stage of an unknown domain would judge no document, and nobody would see it."""
    domains = sorted({source.domain for source in recipe.sources} | {rule.name for rule in recipe.domains})
    for position, use in enumerate(recipe.stages):
        named = use.parameters.get("domains", ())
        if isinstance(named, list | tuple):
            _require_known(named, domains, f"recipe, key stages.{position}.domains")
    if recipe.schedule:
        groups = recipe.schedule.groups
        named = [name for members in groups.values() for name in members] + list(recipe.schedule.max_epochs)
        weights = (stage.weights for stage in recipe.schedule.stages if not isinstance(stage.weights, str))
        named += [name for weight in weights for name in weight]
        _require_known(named, [*domains, *groups], "recipe, key schedule")
    languages = [lm.language for lm in recipe.lm]
    for position, language in enumerate(languages):
        if language in languages[:position]:
            raise UserError(
                f"there are two models of {language!r}",
                place=f"recipe, key lm.{position}",
                remedy="Keep one; its corpus may have several globs",
            )


def _require_known(named: Iterable[str], known: Sequence[str], place: str) -> None:
    for name in named:
        if name not in known:
            raise UserError(
                f"no document can be of the domain {name!r}", place=place, remedy=f"The recipe has {', '.join(known)}"
            )


def curate(workspace: Workspace, plan: Plan, runner: LocalRunner | BeamRunner, reporter: Reporter) -> Run:
    """Make every pass that is not finished, and give the run with all digests."""
    store = workspace.store
    # From here on the folder is not finished, until the digests of all passes are known again.
    if store.exists(DIGESTS_FILE):
        store.delete(DIGESTS_FILE)
    run = Run(store.root, digest_of([describe(workspace.recipe), [split.name for split in plan.splits]]))
    replace(workspace, recipe=with_defaults(workspace)).take_over(run.recipe_key)
    save_plan(store, plan, load_sources(store))
    timings: dict[str, float] = store.read_json(TIMINGS_FILE) if store.exists(TIMINGS_FILE) else {}
    for work in PASSES:
        run = run.with_digest(work.name, work.digest(run))
        started = time.monotonic()
        if make(work, run, runner, reporter):
            timings[work.name] = round(time.monotonic() - started, 3)
        run.note_progress()
    store.write_json(DIGESTS_FILE, dict(run.digests))
    store.write_json(TIMINGS_FILE, timings)
    return run


def make(work: Pass, run: Run, runner: LocalRunner | BeamRunner, reporter: Reporter) -> bool:
    """Make one pass and give True, or skip it where its digest is unchanged and all its files are there."""
    folder = run.folder(work.name)
    units = work.units(run)
    if folder.is_finished(units):
        reporter.begin(work.name, 0, 0, is_bytes=False)
        reporter.end("unchanged")
        return False
    pending = folder.pending(units)
    weights = {unit: work.weight(run, unit) for unit in units}
    total, before = sum(weights.values()), sum(weights[unit] for unit in units if unit not in set(pending))
    reporter.begin(work.name, total, before, is_bytes=work.weighs_bytes)
    started = time.monotonic()
    if isinstance(work, DriverPass):
        for _ in pending:
            work.work(run)
    elif pending:
        waiting = set(pending)

        def poll() -> None:
            # One listing, and a look into the new ones only: a pass may have a hundred thousand units.
            found = folder.marked() & waiting
            waiting.difference_update({unit for unit in found if folder.marker(unit) is not None})
            reporter.advance(total - sum(weights[unit] for unit in waiting))

        runner.run(work, run, pending, poll)
    folder.finish(units)
    skipped = f", {len(units) - len(pending)} finished before" if len(pending) < len(units) else ""
    reporter.end(
        f"{len(pending)} unit{'' if len(pending) == 1 else 's'} in {time.monotonic() - started:.1f} s{skipped}"
    )
    return True


def finished_run(root: str) -> Run:
    """Return the run of a folder whose passes are all finished, to read from.

    Raises:
        UserError: if there is no run, or it is not finished.
    """
    run, is_finished = judged_run(root)
    if not is_finished:
        raise _unfinished(root)
    return run


def judged_run(root: str) -> tuple[Run, bool]:
    """Return a run that has every verdict, to look into, and whether it is finished: tokens may still be missing.

    Raises:
        UserError: if there is no run, or its verdicts are not all there yet.
    """
    workspace = Workspace.open(root)
    store = workspace.store
    is_finished = store.exists(DIGESTS_FILE)
    digests: dict[str, str] = {}
    if is_finished:
        digests = store.read_json(DIGESTS_FILE)
    elif store.exists(RUN_FILE):
        digests = store.read_json(RUN_FILE)["digests"]
    if not is_finished and Drops.name not in digests:
        raise _unfinished(root)
    return Run(root, digest_of([describe(workspace.recipe), digests]), tuple(digests.items())), is_finished


def _unfinished(root: str) -> UserError:
    return UserError(
        "the run in this folder is not finished", place=root, remedy="Run the recipe again; finished work is kept"
    )


@contextlib.contextmanager
def locked(workspace: Workspace) -> Iterator[None]:
    """Hold the folder for one driver or training at a time, where it is local.

    Raises:
        UserError: if another process works there.
    """
    path = workspace.store.local_path(lock.LOCK_FILE)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock.locked(path, workspace.store.root):
        workspace.store.clear_scratch()
        yield


def pass_names() -> Sequence[str]:
    """Return the names of all passes, in order."""
    return [work.name for work in PASSES]
