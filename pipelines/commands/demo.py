"""``headrace demo``: the whole chain on a small crawl that it writes itself, checked against what was planted in it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shards.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.demo.planted import Planted
    from pipelines.run import Run

RECIPE = "demo.toml"
LAST_STEPS = 8
"""Steps at a phase's end whose losses are averaged: a single batch holds few documents of a domain."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the crawl, the recipe and the run.")] = Path("headrace-demo"),
    workers: Annotated[int | None, typer.Option(min=1, help="Local processes.")] = None,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Train a small model at the end.")] = True,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Processes to train on; GPUs, or up to 2 on CPU, by default.")
    ] = None,
) -> None:
    """Write a small crawl, take it through every step, check what became of each planted page, and train on it.

    Needs no network and no files of yours.
    """
    from pipelines.commands.run import Request, carry_out, prepare, show_report, train_on
    from pipelines.inspection.terminal import make_console

    started = time.monotonic()
    console = make_console()
    require_own_folder(out)
    planted = _corpus(out, console)
    recipe = _recipe(out, console)
    root = out / "run"
    _step(console, "Curating", f", as: headrace run {recipe} --out {root}")
    prepared = prepare(Request(str(recipe), str(root), workers=workers, train=train, ranks=ranks))
    run = carry_out(prepared, console)
    show_report(run, console)
    if not _check(run, planted, console):
        raise typer.Exit(1)
    if prepared.trains:
        _step(console, "Training", f", as: headrace train {root}{f' --ranks {ranks}' if ranks else ''}")
        if code := train_on(str(root), ranks):
            raise typer.Exit(code)
        _show_losses(root, console)
    _say_what_next(out, recipe, root, time.monotonic() - started, prepared.trains, console)


def require_own_folder(out: Path) -> None:
    """Refuse a folder with other files in it.

    Raises:
        UserError: if the folder is not empty and not an earlier demo's.
    """
    if out.exists() and not out.is_dir():
        raise UserError("this is a file, not a folder", place=f"--out {out}", remedy="Name a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / "corpus").is_dir():
        raise UserError(
            "the folder holds files that are not the demo's", place=f"--out {out}", remedy="Name an empty folder"
        )


def _step(console: Console, title: str, note: str = "") -> None:
    from rich.text import Text

    console.print(Text.assemble((title, "bold"), (note, "dim")), soft_wrap=True)


def _corpus(out: Path, console: Console) -> Planted:
    from rich.text import Text

    from pipelines.capacity.machine import shown_bytes
    from pipelines.demo.corpus import write_corpus
    from pipelines.demo.planted import Planted

    folder = out / "corpus"
    # Written last: a crawl without it was not finished.
    if (folder / "planted.json").is_file():
        _step(console, "Using the crawl", f" that an earlier demo wrote to {folder}")
        return Planted.read(folder / "planted.json")
    _step(console, "Writing a small crawl", f" to {folder}, from texts that come with Python and pages made for it")
    planted = write_corpus(folder)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    total = shown_bytes(sum(path.stat().st_size for path in files))
    console.print(Text(f"  {len(files)} files, {total}; {len(planted.items)} records planted with a known verdict"))
    for note in planted.notes:
        console.print(Text(f"  note: {note}"), soft_wrap=True)
    return planted


def _recipe(out: Path, console: Console) -> Path:
    from pipelines.demo.recipe import demo_recipe

    path = out / RECIPE
    if not path.is_file():
        path.write_text(demo_recipe(), encoding="utf-8")
    _step(console, "Recipe", f": {path}, to read and to copy")
    return path


def _check(run: Run, planted: Planted, console: Console) -> bool:
    """Print whether each planted record got the verdict that it should, and return whether all did."""
    import pyarrow as pa
    from rich.text import Text

    from pipelines.demo.check import check, summary
    from pipelines.inspection.funnel import recounted, report
    from pipelines.inspection.verdicts import verdicts

    findings = check(pa.concat_tables(verdicts(run)), planted)
    wrong = [finding for finding in findings if not finding.ok]
    _step(console, "Checking every planted record", " against the table of verdicts")
    for kind, good, number in summary(findings):
        style = "green" if good == number else "bold red"
        console.print(Text.assemble((f"  {good:>3} of {number:<3}", style), f" {kind}"))
    for finding in wrong:
        line = f"  {finding.url or finding.kind}: expected {finding.expected}, found {finding.found}"
        console.print(Text(line, style="red"), soft_wrap=True)
    consistent = report(run) == recounted(run)
    if not consistent:
        console.print(Text("  the statistics in the markers and in the verdicts differ", style="red"))
    if not wrong and consistent:
        console.print(
            Text(
                f"  All {len(planted.items)} records and {len(findings) - len(planted.items)} groups of duplicates are "
                "accounted for, and the drop statistics agree with every verdict.\n"
            )
        )
    return not wrong and consistent


def _show_losses(root: Path, console: Console) -> None:
    from pipelines.inspection.terminal import loss_table

    console.print()
    console.print(loss_table("Loss per domain, in nats", losses(_log(root / "train-log.jsonl"))))


def _log(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def losses(lines: Iterator[dict[str, Any]] | Sequence[dict[str, Any]]) -> list[tuple[str, Mapping[str, float]]]:
    """Return (label, loss by domain) of a training log: first step, each phase's last steps, its held-out loss."""
    rows: list[tuple[str, Mapping[str, float]]] = []
    trained: dict[str, list[dict[str, Any]]] = {}
    held: dict[str, Mapping[str, float]] = {}
    for line in lines:
        if line["kind"] == "train":
            trained.setdefault(line["phase"], []).append(line)
        elif line["kind"] == "held_out":
            held[line["phase"]] = {domain: row["loss"] for domain, row in line["domains"].items()}
    for phase, steps in trained.items():
        if not rows:
            rows.append(("step 1", _mean(steps[:1])))
        last = steps[-LAST_STEPS:]
        context = last[-1]["context_tokens"]
        rows.append((f"{phase} (context {context}), last {len(last)} steps", _mean(last)))
        if phase in held:
            rows.append((f"{phase}, held out", held[phase]))
    return rows


def _mean(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean loss of each domain over steps, each target counted once."""
    total: dict[str, float] = {}
    targets: dict[str, int] = {}
    for step in steps:
        for domain, row in step["domains"].items():
            total[domain] = total.get(domain, 0.0) + row["loss"] * row["targets"]
            targets[domain] = targets.get(domain, 0) + row["targets"]
    return {domain: total[domain] / targets[domain] for domain in sorted(total) if targets[domain]}


def _say_what_next(out: Path, recipe: Path, root: Path, seconds: float, trained: bool, console: Console) -> None:
    from rich.text import Text

    look = [
        (f"headrace inspect {root}", "the funnel, by language and domain"),
        (f"headrace inspect {root} --samples gopher_quality_v2", "dropped pages, with the score that did it"),
        (f"headrace inspect {root} --duplicates", "removed duplicates beside what was kept instead"),
        (f"headrace inspect {root} --trace web:0:5", "a training token back to its page and verdict"),
        (f"{root / 'recipe.json'}", "every setting, defaults spelled out"),
    ]
    if trained:
        look.append((f"{root / 'train-log.jsonl'}", "loss per step and domain"))
    follow = [
        (f"headrace run {recipe} --out {out / 'sample'} --no-train --sample 0.5", "half of the documents"),
        (f"headrace run {recipe} --out {out / 'strict'} --no-train dedup.threshold=0.6", "any key can be changed"),
        ("headrace stages", "what a chain can be made of; then point [[sources]] of the recipe at your own files"),
    ]
    minutes, rest = divmod(round(seconds), 60)
    console.print(Text(f"\nDone in {minutes}:{rest:02d}.", style="bold"))
    for title, lines in (("Look at", look), ("Then try", follow)):
        console.print(Text(f"{title}:", style="bold"))
        for command, why in lines:
            console.print(Text.assemble("  ", (command, "cyan"), f"   {why}"), soft_wrap=True)
