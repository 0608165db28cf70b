"""``headrace generate RUN PROMPT``: text from a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shards.errors import UserError


def generate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a run whose training is finished.")],
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    tokens: Annotated[int, typer.Option(min=1, help="At most so many new tokens.")] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the most likely token each time.")] = 0.8,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Choose among the likeliest that sum to it.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same text on the same machine.")] = 0,
) -> None:
    """Continue a text with the weights that training ended with.

    Nucleus sampling by arXiv 1904.09751. Earlier keys and values are kept, so a token costs one pass of one token.
    """
    from shards.reader import ShardSet
    from trainer.config import Job
    from trainer.generate import Sampling, load
    from trainer.generate import generate as tokens_after
    from trainer.tokens import tokenizer_of

    job = Job.load(folder.resolve())
    catalog = ShardSet.open(job.folder / "shards").catalog
    tokenizer = tokenizer_of(job.folder, catalog.tokenizer)
    if tokenizer is None:
        raise UserError(
            "the run's tokeniser cannot be loaded",
            place=str(job.folder / "tokenizer"),
            remedy="Install it: pip install tokenizers, and keep the run's tokenizer folder",
        )
    model, rope = load(job)
    given = tokenizer.encode(prompt)
    found = tokens_after(
        model,
        rope,
        given,
        Sampling(temperature, top_p, seed),
        context=job.schedule.phases[-1].context_tokens,
        end_of_text=catalog.end_of_text,
        most=tokens,
    )
    typer.echo(tokenizer.decode([*given, *found]))
