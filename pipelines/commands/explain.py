"""``headrace explain``: single documents through a recipe's chain, with every score and every limit."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipelines.inspection.explain import Explained
    from pipelines.inspection.opening import Opened


def explain(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe, or the folder of a run.")],
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A file of documents, a path or URI; - for stdin.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Change keys of the recipe: gopher_quality_v2.min_words=80"),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Records to explain; 0 for all.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line, as documents are read.")] = False,
    source: Annotated[
        int | None,
        typer.Option(
            metavar="POSITION",
            help="The \\[\\[sources]] table that says how to read it, from 0; else the first that names it.",
        ),
    ] = None,
    chars: Annotated[int, typer.Option(min=0, help="Characters shown of a text.")] = 400,
) -> None:
    """Show what each stage makes of single documents, the limits that apply, and where each would have stopped.

    A run's folder knows more than a recipe: the models it fitted, and the limits it measured.
    """
    from pipelines.inspection.opening import documents, open_chain

    opened = open_chain(recipe, overrides or ())
    found = documents(opened, file, sys.stdin.buffer, source, limit or None)
    if not as_json:
        _show(opened, found, chars)
        return
    for note in opened.notes:
        typer.echo(f"note: {note}", err=True)
    for one in found:
        typer.echo(json.dumps(one.to_json(chars), ensure_ascii=False))


def _show(opened: Opened, found: Iterator[Explained], chars: int) -> None:
    from pipelines.inspection import explain_tables, terminal

    console = terminal.make_console()
    for note in opened.notes:
        console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)
    ends: Counter[str] = Counter()
    for one in found:
        ends[one.verdict] += 1
        console.print(explain_tables.document(one, chars, unicode=terminal.can_draw(console)))
    console.print(explain_tables.summary(ends), soft_wrap=True)
