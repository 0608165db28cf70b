"""Explained documents on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipelines.inspection.explain import End, Explained, Scored
from pipelines.inspection.terminal import clean, excerpt, new_table


def document(one: Explained, chars: int, *, unicode: bool = True) -> Group:
    """Return a document: its verdict, the beginning of its text, and a line for every score."""
    parts = [
        Text(f"{one.doc_id}  {clean(one.url or '(no URL)')}", style="cyan", overflow="fold"),
        Text.assemble("  ", _verdict(one)),
        Text(f"  at {one.offset}, language {clean(one.language)}, domain {clean(one.domain)}", style="dim"),
    ]
    if one.end is not None and one.end.detail:
        parts.append(Text(f"  {clean(one.end.detail)}", style="red"))
    if one.text is not None:
        parts.append(excerpt(one.text, chars))
    return Group(*parts, *([_table(one, unicode=unicode)] if one.steps else []), Text())


def _verdict(one: Explained) -> Text:
    end = one.end
    if end is None and one.open_links:
        return Text(f"not stopped, as far as can be told without a run of {', '.join(one.open_links)}", style="yellow")
    if end is None:
        return Text("kept by the chain", style="bold green")
    value = "" if end.value is None else f" at {end.value:.7g}"
    said = f"{'failed in' if end.failed else 'dropped by'} {end.dropped_by}: {end.reason}{value}"
    return Text(clean(said), style="bold red")


def _table(one: Explained, *, unicode: bool) -> Table:
    table = new_table("", "  ", ("score", "right"), "limits", "")
    is_past = False
    for step in one.steps:
        skipped = step.skipped.why if step.skipped is not None else ""
        table.add_row(Text(f"  {step.link}", style="bold"), "", Text(clean(skipped), style="dim"), "")
        for score in step.scores:
            table.add_row(*_score_row(score, unicode=unicode))
        if step.end is not None:
            # What comes after the first stop is shown, and would never have been reached.
            table.add_row("", "", _stop(step.end, is_past=is_past), "")
            is_past = True
    if one.end is not None and not is_past:
        table.add_row(Text(f"  {one.end.dropped_by}", style="bold"), "", _stop(one.end, is_past=False), "")
    return table


def _stop(end: End, *, is_past: bool) -> Text:
    said = f"{'would stop here too' if is_past else 'stops here'}: {end.reason}{' (failed)' if end.failed else ''}"
    return Text(clean(said), style="dim" if is_past else "bold red")


def _score_row(score: Scored, *, unicode: bool) -> tuple[Text, ...]:
    missing, cross = ("–", "✗ ") if unicode else ("-", "x ")
    value = score.value
    shown = missing if value is None else clean(value) if isinstance(value, str) else f"{value:,.7g}"
    limits = "; ".join(asked.words for asked in score.limits)
    reasons = ", ".join(dict.fromkeys(asked.limit.check.reason for asked in score.limits if asked.drops))
    style = "red" if reasons else "" if score.limits else "dim"
    mark = Text(f"{cross}{reasons}" if reasons else "", style="red")
    return Text(f"    {score.name}"), Text(shown, style=style), Text(clean(limits), style=style or "dim"), mark


def summary(verdicts: Mapping[str, int]) -> Text:
    """Return how many documents have which verdict, in a sentence."""
    total = sum(verdicts.values())
    many = f"{total:,} record{'' if total == 1 else 's'}"
    words = {
        "kept": "kept by the chain",
        "dropped": "dropped",
        "failed": "failed",
        "open": "not to be told without a run",
    }
    listed = ", ".join(f"{verdicts[name]:,} {said}" for name, said in words.items() if verdicts.get(name))
    return Text(f"{many}: {listed or 'none'}. Duplicates are found by a run only.", style="dim")
