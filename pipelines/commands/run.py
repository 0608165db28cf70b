"""``headrace run``: takes a recipe through every step, from raw files to trained weights."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.failures import DEBUG, ending_on_sigterm
from shards.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.beam.options import BeamOptions
    from pipelines.beam.runners import BeamRunner, LocalRunner
    from pipelines.capacity.estimate import Estimate
    from pipelines.capacity.machine import Machine
    from pipelines.plan import Plan
    from pipelines.recipe import Recipe, SourceSettings
    from pipelines.run import Run
    from pipelines.workspace import Workspace


_ONE_PROCESS = (
    "Beam's local runner works in this one process, in memory; --workers N runs N processes and writes the same bytes"
)


def run(
    context: typer.Context,
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="The recipe, a TOML file, or the folder of a run."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Change keys of the recipe: shards.held_out_share=0.01"),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Output folder; an earlier run in it is resumed. By default, the run's folder that is named."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Local processes; by default as many as CPUs and memory allow.")
    ] = None,
    sample: Annotated[float | None, typer.Option(help="Take this share of the documents, by hash of doc_id.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, plan and estimate; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON; progress goes to stderr.")] = False,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Train if the recipe has \\[training].")] = True,
    ranks: Annotated[int | None, typer.Option(min=1, help="Processes to train on.")] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in the code a failure was noticed, and what Beam logs.")
    ] = False,
) -> None:
    """Curate what a recipe names, and train on it. Finished work is kept: the same command resumes.

    What follows -- goes to Beam, so that another runner does the work: -- --runner=PrismRunner
    """
    from pipelines.inspection.terminal import make_console

    if debug:
        os.environ[DEBUG] = "1"
    request = Request(
        recipe=recipe,
        out=out,
        overrides=tuple(overrides or ()),
        workers=workers,
        sample=sample,
        beam_options=getattr(context.obj, "beam_options", ()),
        train=train,
        ranks=ranks,
    )
    console = make_console(stderr=as_json)
    prepared = prepare(request)
    for note in prepared.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if dry_run:
        show_plan(prepared, console, as_json=as_json)
        return
    finished = carry_out(prepared, console)
    if as_json:
        from pipelines.inspection.funnel import report_json

        typer.echo(json.dumps(report_json(finished), indent=1, ensure_ascii=False))
    else:
        show_report(finished, console)
    if prepared.trains and (code := train_on(prepared.workspace.store.root, ranks, to_stderr=as_json)):
        raise typer.Exit(code)


@dataclass(frozen=True)
class Request:
    """What a command line asks for."""

    recipe: str
    out: str | None = None
    overrides: tuple[str, ...] = ()
    workers: int | None = None
    sample: float | None = None
    beam_options: tuple[str, ...] = ()
    train: bool = True
    ranks: int | None = None


@dataclass(frozen=True)
class Prepared:
    """A run that has been checked and fits the machine, before anything is written."""

    workspace: Workspace
    plan: Plan
    needed: Estimate
    machine: Machine
    workers: int
    runner: LocalRunner | BeamRunner
    trains: bool
    notes: tuple[str, ...] = ()


def prepare(request: Request) -> Prepared:
    """Check everything that a request names, plan it, and estimate what it needs.

    Raises:
        UserError: for the first thing that is wrong, or if the run cannot fit.
    """
    recipe, base, out = _asked(request)
    # A mistake is found before Beam is loaded, which takes longer than all the checking.
    from pipelines.capacity import machine
    from pipelines.capacity.estimate import estimate_run
    from pipelines.checking import check
    from pipelines.effects import idle
    from pipelines.workspace import Workspace
    from shards.memory import cpus, default_ranks

    trains = request.train and recipe.training is not None
    if trains:
        _require_trainer(out)
    workspace = Workspace.of(out, recipe, base)
    options = _beam_options(request)
    workers, notes = _local_workers(request.workers, options)
    plan = check(workspace)
    free, ranks = machine.measure(workspace), request.ranks or default_ranks()
    if workers is None:
        one = estimate_run(workspace, plan, workers=2, ranks=ranks)
        workers = machine.default_workers(one.worker_bytes, free.memory_bytes, cpus())
    needed = estimate_run(workspace, plan, workers=workers, ranks=ranks, train=trains)
    machine.require_capacity(needed, free, out, already_bytes=machine.bytes_at(workspace))
    from pipelines.beam.runners import make_runner

    runner = make_runner(max(1, workers), options)
    return Prepared(workspace, plan, needed, free, workers, runner, trains, (*notes, *idle(workspace)))


def _beam_options(request: Request) -> BeamOptions | None:
    if not request.beam_options:
        return None
    from pipelines.beam.options import BeamOptions

    return BeamOptions.parse(request.beam_options)


def _asked(request: Request) -> tuple[Recipe, str, str]:
    """Return the recipe that is asked for, the folder that its paths are relative to, and the output folder.

    Raises:
        UserError: if the recipe is not valid, or no output folder is named.
    """
    from pipelines.recipe import changed_recipe, load_recipe
    from pipelines.workspace import RECIPE_FILE, Workspace
    from shards.store import Store

    sampled = () if request.sample is None else (f"sample={request.sample!r}",)
    overrides = (*request.overrides, *sampled)
    if ("://" in request.recipe or Path(request.recipe).is_dir()) and Store(request.recipe).exists(RECIPE_FILE):
        saved = Workspace.open(request.recipe)
        return changed_recipe(saved.recipe, overrides, request.recipe), saved.base, request.out or request.recipe
    recipe = load_recipe(request.recipe, overrides)
    if request.out is None:
        raise UserError("no output folder is named", place="headrace run", remedy="Add --out DIR")
    return recipe, str(Path(request.recipe).absolute().parent), request.out


def _local_workers(asked: int | None, options: BeamOptions | None) -> tuple[int | None, tuple[str, ...]]:
    """Return how many local processes a command line asks for, None where it leaves that open, and notes on them."""
    if options is None:
        return asked, ()
    if not options.is_local:
        return 0, ()
    return (1, (_ONE_PROCESS,)) if asked is None else (asked, ())


def _require_trainer(out: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            "the recipe has [training], but torch is not installed",
            remedy="Install it: pip install 'headrace[train]'. Or only curate, with --no-train",
        )
    if "://" in out and not out.startswith("file://"):
        raise UserError(
            "training reads its shards from a local folder",
            place=f"--out {out}",
            remedy="Curate with --no-train, copy the folder, and run 'headrace train' on the copy",
        )


def carry_out(prepared: Prepared, console: Console) -> Run:
    """Make every pass that is not finished.

    Raises:
        UserError: if another process works in the folder.
        RunnerError: if a runner or a worker fails.
    """
    from pipelines import driver
    from pipelines.progress import PassProgress

    workspace = prepared.workspace
    with ending_on_sigterm(), driver.locked(workspace), prepared.runner as runner, PassProgress(console) as progress:
        return driver.curate(workspace, prepared.plan, runner, progress)


def train_command(folder: str, ranks: int | None) -> list[str]:
    """Return the command that trains on a finished run: another process, because curation never imports the trainer."""
    # -P: nothing in the current folder may shadow our packages.
    start = [sys.executable, "-P", "-c", "from pipelines.cli import main; main()", "train", folder]
    return [*start, "--ranks", str(ranks)] if ranks else start


def train_on(folder: str, ranks: int | None, *, to_stderr: bool = False) -> int:
    """Train on a finished run and return the exit code."""
    sys.stdout.flush()
    process = subprocess.Popen(train_command(folder, ranks), stdout=sys.stderr.fileno() if to_stderr else None)
    try:
        return process.wait()
    except KeyboardInterrupt:
        # Ctrl-C has reached it as well: it saves what it can, and must not be killed meanwhile.
        process.wait()
        raise


def show_report(finished: Run, console: Console) -> None:
    """Print what the stages dropped, and what the shards hold."""
    from rich.text import Text

    from pipelines.effects import unmodelled
    from pipelines.inspection import funnel, terminal

    unicode = terminal.can_draw(console)
    stages = funnel.report(finished).stages
    console.print()
    console.print(terminal.funnel_table("Documents through the chain", stages, unicode=unicode, width=console.width))
    console.print()
    tokens = funnel.tokens_by_domain(finished)
    console.print(terminal.tokens_table("Tokens in the shards", tokens, unicode=unicode))
    console.print()
    for line in terminal.left_out_lines(finished.plan.left_out.to_pylist()):
        console.print(line, soft_wrap=True)
    for note in unmodelled(finished):
        console.print(Text(f"note: {terminal.clean(note)}"), soft_wrap=True)


def show_plan(prepared: Prepared, console: Console, *, as_json: bool) -> None:
    """Print what a run would do."""
    value = plan_json(prepared)
    if as_json:
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
        return
    from rich.text import Text

    from pipelines.capacity.machine import shown_bytes
    from pipelines.inspection import terminal

    console.print(terminal.sources_table("Sources", value["sources"]))
    lines = [
        f"{value['splits']} split(s), {shown_bytes(value['bytes'])}",
        f"chain: {' > '.join(value['chain'])}",
        *(f"schedule: {name}" for name in value["schedule"]),
        f"estimate: {shown_bytes(value['estimate']['text_bytes'])} of text, "
        f"{shown_bytes(value['estimate']['disk_bytes'])} of disk ({_shown(value['free']['disk_bytes'])} free), "
        f"{shown_bytes(value['estimate']['curation_bytes'])} of memory with {value['workers'] or 'no local'} worker(s) "
        f"({_shown(value['free']['memory_bytes'])} free)",
    ]
    if prepared.trains:
        lines.append(f"training: {shown_bytes(value['estimate']['training_bytes'])} of memory")
    console.print()
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for left_out in terminal.left_out_lines(value["left_out"]):
        console.print(left_out, soft_wrap=True)
    console.print(Text("Nothing was written."))


def _shown(value: int | None) -> str:
    from pipelines.capacity.machine import shown_bytes

    return "unknown" if value is None else shown_bytes(value)


def plan_json(prepared: Prepared) -> dict[str, Any]:
    """Return the plan of a run as plain values."""
    from pipelines.chain import stage_names

    recipe, needed = prepared.workspace.recipe, prepared.needed
    plan = prepared.plan
    totals = zip(recipe.sources, plan.totals(len(recipe.sources)), strict=True)
    schedule = recipe.schedule.phases if recipe.schedule else ()
    return {
        "sources": [_source_json(settings, files, size) for settings, (files, size) in totals],
        "left_out": plan.left_out.to_pylist(),
        "splits": len(plan.splits),
        "bytes": plan.size,
        "chain": stage_names(recipe),
        "schedule": [f"{s.name}, context {s.context_tokens} tokens" for s in schedule] if prepared.trains else [],
        "workers": prepared.workers,
        "estimate": {**vars(needed), "curation_bytes": needed.curation_bytes},
        "free": vars(prepared.machine),
    }


def _source_json(settings: SourceSettings, files: int, size: int) -> dict[str, Any]:
    return {
        "glob": list(settings.globs),
        "list": list(settings.lists),
        "domain": settings.domain,
        "files": files,
        "bytes": size,
    }
