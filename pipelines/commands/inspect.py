"""``headrace inspect``: what a run kept and dropped, why, the documents themselves, and where the time went."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.inspection.costs import PassCosts
    from pipelines.inspection.documents import Shown
    from pipelines.run import Run


class Grouping(StrEnum):
    """What the funnel is broken down by."""

    LANGUAGE = "language"
    DOMAIN = "domain"


def inspect(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Output folder of a finished run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    by: Annotated[
        Grouping | None, typer.Option(help="Print a whole funnel, or the scores, for each language or domain.")
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show dropped documents: of a STAGE, a REASON, STAGE/REASON, or all."),
    ] = None,
    kept: Annotated[int | None, typer.Option(metavar="N", min=1, help="Show N kept documents.")] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Samples per reason.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed that chooses the samples.")] = 0,
    chars: Annotated[int, typer.Option(min=1, help="Characters to show of each text.")] = 400,
    duplicates: Annotated[bool, typer.Option("--duplicates", help="Show removed duplicates beside witnesses.")] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Trace DOMAIN:DOCUMENT[:TOKEN], or a doc_id, to its source and verdict."),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Show percentiles and limits of every score.")] = False,
    score: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show the histogram of a score: of a STAGE, a SCORE or STAGE.SCORE."),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Show what another run did otherwise, and which documents moved."),
    ] = None,
    costs: Annotated[
        bool, typer.Option("--costs", help="Show where the time went: CPU and memory by pass and stage.")
    ] = False,
) -> None:
    """Show what each stage saw, kept, dropped and failed, tokens per domain, and samples to read."""
    from pipelines.driver import judged_run

    if compare is not None:
        _show_comparison(folder, compare, as_json)
        return
    if scores or score is not None:
        _show_scores(folder, score or "all", by, as_json, is_overview=score is None)
        return
    spent = _costs(folder) if costs or as_json else []
    if costs and not (by or samples or kept or duplicates or trace):
        # Needs no verdicts, so that a run can be inspected while it is under way.
        _show_costs(folder, spent, as_json)
        return
    run, is_finished = judged_run(folder)
    readings = _read(run, samples, kept, number, seed, duplicates, trace)
    if as_json:
        from pipelines.inspection.costs import costs_json
        from pipelines.inspection.funnel import report_json

        value = {
            "finished": is_finished,
            **report_json(run),
            "costs": costs_json(spent),
            **{title: _plain(found) for title, found in readings.items()},
        }
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
        return
    from pipelines.inspection.terminal import make_console

    if costs:
        _show_costs(folder, spent, as_json)
    console = make_console()
    if not is_finished:
        console.print("[yellow]This run is not finished:[/] its verdicts are all here, its shards are not.\n")
    if readings:
        for place, found in readings.items():
            _print_readings(console, place, found, chars)
    else:
        _print_report(console, run, by)


def _costs(folder: str) -> list[PassCosts]:
    from pipelines.driver import elapsed
    from pipelines.inspection.costs import costs
    from pipelines.passes.build import KINDS
    from pipelines.workspace import Workspace

    store = Workspace.open(folder).store
    return costs(store, [kind.name for kind in KINDS], elapsed(store))


def _show_costs(folder: str, passes: Sequence[PassCosts], as_json: bool) -> None:
    if as_json:
        from pipelines.inspection.costs import costs_json

        typer.echo(json.dumps({"costs": costs_json(passes)}, indent=1, ensure_ascii=False))
        return
    from rich.text import Text

    from pipelines.inspection import terminal

    console = terminal.make_console()
    if not passes:
        said = f"No costs are recorded in {folder}: no unit is finished yet, or an older version wrote it."
        console.print(Text(said), soft_wrap=True)
        return
    unicode, width = terminal.can_draw(console), console.width
    console.print(terminal.costs_table("Where the time went", passes, unicode=unicode, width=width))
    console.print()
    console.print(terminal.units_table("Units", passes, unicode=unicode))
    console.print()
    note = _COSTS_NOTE
    if any(stage.is_lower_bound for one in passes for stage in one.stages):
        note += " Marked CPU leaves out threads of libraries: the runner had several stages at work in one process."
    if not all(one.is_peak_of_units for one in passes):
        note += " A marked peak may be that of an earlier unit in the same process."
    console.print(Text(note, style="dim"))


def _show_scores(folder: str, wanted: str, by: Grouping | None, as_json: bool, *, is_overview: bool) -> None:
    from pipelines.driver import judged_run
    from pipelines.inspection.scores import histograms, histograms_by

    run, _ = judged_run(folder)
    groups = {"": histograms(run, wanted)} if by is None else histograms_by(run, wanted, by.value)
    if as_json:
        plain = {name: {one.column: one.to_json() for one in found} for name, found in groups.items()}
        value = {"scores": plain[""]} if by is None else {f"scores_by_{by.value}": plain}
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False))
        return
    from pipelines.inspection import score_tables, terminal

    console = terminal.make_console()
    unicode, width = terminal.can_draw(console), console.width
    for name, found in groups.items():
        title = (
            f"{by.value} {terminal.clean(name)}" if by is not None else "Scores of the documents that each stage judged"
        )
        if is_overview:
            console.print(score_tables.scores_table(title, found, width=width))
            console.print()
            continue
        for one in found:
            if by is not None and not one.rows:
                continue
            if by is not None:
                console.print(title, style="bold", markup=False)
            console.print(score_tables.histogram_table(one, unicode=unicode, width=width))
            console.print()


def _show_comparison(folder: str, other: str, as_json: bool) -> None:
    from pipelines.driver import judged_run
    from pipelines.inspection.compare import compare

    found = compare(judged_run(folder)[0], judged_run(other)[0])
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
        return
    from pipelines.inspection import terminal
    from pipelines.inspection.compare_tables import comparison_tables

    console = terminal.make_console()
    for table in comparison_tables(found, (folder, other), unicode=terminal.can_draw(console)):
        console.print(table)
        console.print()


_COSTS_NOTE = (
    "Only attempts that finished count: not what failed or was killed, nor Beam's start-up and shuffles. "
    "Rows and MB are those that a stage worked on. Passes that are not listed have no unit, or no records."
)


def _read(
    run: Run,
    samples: str | None,
    kept: int | None,
    number: int,
    seed: int,
    duplicates: bool,
    trace: str | None,
) -> dict[str, tuple[Mapping[str, Any], Sequence[Shown]]]:
    """Return the documents that were asked for, by what they are: (facts about the place, documents)."""
    from pipelines.chain import EXACT_DEDUP, NEAR_DEDUP
    from pipelines.inspection import documents

    found: dict[str, tuple[Mapping[str, Any], Sequence[Shown]]] = {}
    if trace is not None:
        place, shown = documents.traced(run, trace)
        found["trace"] = place, [shown]
    if samples is not None:
        found["samples"] = {}, documents.dropped_samples(run, samples, number, seed)
    if duplicates:
        everything = documents.dropped_samples(run, "all", number, seed)
        found["removed_duplicates"] = {}, [one for one in everything if one.dropped_by in (EXACT_DEDUP, NEAR_DEDUP)]
    if kept is not None:
        found["kept"] = {}, documents.kept_samples(run, kept, seed)
    return found


def _plain(found: tuple[Mapping[str, Any], Sequence[Shown]]) -> Any:
    place, documents = found
    plain = [{**vars(one), "scores": dict(one.scores)} for one in documents]
    if not place:
        return plain
    readable = {key: value.hex() if isinstance(value, bytes) else value for key, value in place.items()}
    return {"place": readable, "documents": plain}


def _print_report(console: Console, run: Run, by: Grouping | None) -> None:
    from pipelines.inspection import funnel, terminal

    found, unicode, width = funnel.report(run), terminal.can_draw(console), console.width
    groups = {Grouping.LANGUAGE: found.languages, Grouping.DOMAIN: found.domains}
    tables: list[Any] = []
    if by is not None:
        for name, links in groups[by].items():
            tables.append(terminal.funnel_table(f"{by.value} {name}", links, unicode=unicode, width=width))
    else:
        title = "Documents through the chain"
        tables.append(terminal.funnel_table(title, found.stages, unicode=unicode, width=width))
        for grouping, funnels in groups.items():
            tables.append(terminal.groups_table(f"By {grouping.value}", funnels, unicode=unicode, width=width))
        if edits := funnel.edited(run):
            tables.append(terminal.edits_table("Edited text", edits))
        tables.append(terminal.duplicates_table("Duplicates", funnel.duplicates(run)))
        tables.append(terminal.tokens_table("Tokens in the shards", funnel.tokens_by_domain(run), unicode=unicode))
    for table in tables:
        console.print(table)
        console.print()
    for line in terminal.left_out_lines(run.plan.left_out.to_pylist()):
        console.print(line, soft_wrap=True)


def _print_readings(console: Console, title: str, found: tuple[Mapping[str, Any], Sequence[Shown]], chars: int) -> None:
    from rich.text import Text

    from pipelines.inspection.terminal import clean

    place, documents = found
    if place:
        console.print(Text("Token in the shards", style="bold"))
        for key in ("domain", "subset", "shard", "row", "token"):
            console.print(Text(f"  {key:<10} {clean(str(place[key]))}"), soft_wrap=True)
    heading = ""
    for one in documents:
        name = f"{one.dropped_by}/{one.reason}" if one.dropped_by else "kept"
        if name != heading:
            heading = name
            console.print(Text(name, style="bold"))
        _print_document(console, one, chars)


def _print_document(console: Console, one: Shown, chars: int) -> None:
    from rich.text import Text

    from pipelines.inspection.terminal import clean, excerpt

    facts = [f"language {one.language}", f"domain {one.domain}"]
    if one.dropped_by and one.value is not None:
        facts.insert(0, f"value {one.value:.6g}")
    facts += [f"{name} {score:.6g}" for name, score in one.scores.items()]
    console.print(Text(f"  {one.doc_id}  {clean(one.url or '(no URL)')}", style="cyan"), soft_wrap=True)
    console.print(Text(f"    {clean(one.source)} at {one.offset}; {', '.join(facts)}", style="dim"), soft_wrap=True)
    if one.detail:
        console.print(Text(f"    {clean(one.detail)}", style="red"), soft_wrap=True)
    if one.text is not None:
        console.print(excerpt(one.text, chars), soft_wrap=True)
    elif not one.detail:
        console.print(Text("    (its text was not kept)", style="dim"))
    for line in _edit_lines(one.edits):
        console.print(Text(clean(f"    {line}"), style="yellow"), soft_wrap=True)
    if one.witness is not None:
        close = "" if one.jaccard is None else f" at Jaccard {one.jaccard:.4f}"
        beside = f"    kept in its place{close}: {one.witness}  {clean(one.witness_url or '(no URL)')}"
        console.print(Text(beside, style="green"), soft_wrap=True)
        console.print(excerpt(one.witness_text or "", chars, indent="      "), soft_wrap=True)
    console.print()


def _edit_lines(edits: Sequence[Mapping[str, Any]], most: int = 5) -> list[str]:
    lines = []
    for edit in edits[:most]:
        became = f"became {edit['replacement']!r}" if edit["replacement"] else "removed"
        name, place = f"{edit['edited_by']}/{edit['reason']}", f"bytes {edit['start']}-{edit['end']} of the judged text"
        lines.append(f"edited by {name}: {place} {became}")
    return lines + ([f"and {len(edits) - most:,} more edits"] if len(edits) > most else [])
