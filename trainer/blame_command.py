"""``headrace blame RUN STEP``: names the documents that a training step learned from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from shards.errors import UserError

_TEXT_CHARACTERS: Final = 160


def blame(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a finished run.")],
    step: Annotated[int, typer.Argument(min=1, help="Step of the training, as in its log.")],
    domain: Annotated[str | None, typer.Option(help="Only documents of this domain.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Name the documents of a step's batch: domain, URL, id, the tokens served, and their text.

    The batch is planned anew from the schedule, so nothing needs to have been recorded. 'headrace inspect' tells what
    was decided about a document.
    """
    from shards.reader import ShardSet
    from trainer.blame import content_digest, documents, plan_of, tokens_of
    from trainer.config import Job
    from trainer.tokens import tokenizer_of

    job = Job.load(folder.resolve())
    shards = ShardSet.open(job.folder / "shards")
    if domain is not None and domain not in shards.domains:
        raise UserError(f"the run has no domain {domain!r}", remedy=f"It has {', '.join(shards.domains)}")
    try:
        plan = plan_of(job, shards, step)
    except ValueError as error:
        raise UserError(str(error), place="STEP", remedy="Steps count from 1, as in train-log.jsonl") from error
    tokenizer, console = tokenizer_of(job.folder, shards.catalog.tokenizer), Console(highlight=False, soft_wrap=True)
    if not as_json:
        console.print(f"step {step}: {len(plan.placed.row)} spans in {plan.rows} rows, content {content_digest(plan)}")
    for index, span in enumerate(documents(shards, plan)):
        if domain not in (None, span["domain"]):
            continue
        text = None if tokenizer is None else tokenizer.decode(tokens_of(shards, span, plan, index))
        if as_json:
            console.print(json.dumps({"step": step, **span, "text": text}, ensure_ascii=False), markup=False)
        else:
            console.print(_shown(span, text), markup=False)


def _shown(span: dict[str, Any], text: str | None) -> str:
    last = span["first_token"] + span["span_tokens"]
    where = f"row {span['step_row']}  {span['domain']}  doc {span['doc_id']}  {span['url'] or 'without URL'}"
    line = f"{where}  tokens {span['first_token']}-{last} of {span['tokens']}"
    return line if text is None else f"{line}\n    {' '.join(text.split())[:_TEXT_CHARACTERS]}"
