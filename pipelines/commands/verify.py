"""``headrace verify``: checks that a run's files are still what was written."""

from __future__ import annotations

import contextlib
import errno
import json
from typing import Annotated

import typer


def verify(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Output folder of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Read every file of a run and compare it with what was written; exit with 1 if any differs.

    A damaged file is deleted. The same 'headrace run' then makes what it was part of again, and nothing else.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from pipelines.driver import judged_run, locked
    from pipelines.inspection import integrity
    from pipelines.inspection.terminal import clean, make_console

    run, _ = judged_run(folder)
    console = make_console(stderr=True)
    sizes = [entry.size for _, _, entry in integrity.entries(run)]
    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(run.workspace))
            # What is damaged is deleted, as by a run.
            run.store.repairs = True
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            # Nobody else can change it either.
            console.print("note: the folder is read-only: damaged files are named, and not deleted", markup=False)
        bars = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        progress = stack.enter_context(bars)
        task = progress.add_task("", total=sum(sizes))
        found = integrity.verify(run, lambda size: progress.advance(task, size))
    if as_json:
        value = {"files": len(sizes), "bytes": sum(sizes), "damaged": [vars(one) for one in found]}
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
    else:
        for one in found:
            typer.echo(f"damaged: {clean(one.what)} (unit {one.unit} of pass {one.made_by})")
        whole = f"{len(sizes) - len(found):,} of {len(sizes):,} files are intact"
        typer.echo(f"{whole}; run the same recipe again to replace the others" if found else whole)
    if found:
        raise typer.Exit(1)
