"""``headrace rejudge``: limits of a run moved, on the scores that it stored."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def rejudge(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="Output folder of a run.")],
    overrides: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE", help="Limits of stages by name: gopher_quality_v2.min_words=60"),
    ],
    workers: Annotated[int | None, typer.Option(min=1, help="Local processes; by default one for each CPU.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check whether it can be done; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what moved as JSON; progress goes to stderr.")] = False,
) -> None:
    """Move limits of stages, and apply them to stored scores. No text is read for it.

    Percentiles may be moved either way, and limits that marked at once may be tightened. The new recipe is the run's:
    'headrace run RUN' makes everything else anew that follows from it.
    """
    from pipelines import driver
    from pipelines.beam.runners import LocalRunner
    from pipelines.inspection import moved, terminal
    from pipelines.plan import load_plan
    from pipelines.progress import PassProgress
    from pipelines.recipe import changed_recipe
    from pipelines.rejudge import with_limits
    from pipelines.workspace import Workspace
    from shards.memory import cpus

    workspace = Workspace.open(folder)
    wanted = with_limits(workspace, changed_recipe(workspace.recipe, overrides, folder))
    console = terminal.make_console(stderr=as_json)
    if dry_run:
        console.print("The stored scores can answer this. Nothing was written.")
        return
    with driver.locked(workspace):
        before = moved.fates(driver.run_of(workspace, ("judge",)))
        with LocalRunner(workers or cpus()) as runner, PassProgress(console) as progress:
            run = driver.curate(wanted, load_plan(workspace.store), runner, progress, last="late")
        after = moved.fates(run)
    if as_json:
        typer.echo(json.dumps([vars(one) for one in moved.moves(before, after)], indent=1, ensure_ascii=False))
        return
    console.print(moved.table(before, after))
    console.print(f"The recipe of {terminal.clean(folder)} has the new limits. Make what follows from them:")
    console.print(f"  headrace run {terminal.clean(folder)}", soft_wrap=True)
