"""headrace: shards of the same documents, shuffled globally and packed; all arrays, and where each token comes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from complete import ROWS, arguments, documents_of, measured

sys.path.insert(0, str(Path(__file__).parents[1]))

from linked_shards import write_catalog, write_given

from shards.reader import ShardSet
from shards.schedule.resolve import resolve
from shards.schedule.settings import ScheduleSettings
from trainer.stream import Stream

_SHARD_DOCUMENTS = 32_000


def main() -> None:
    """Write, or serve."""
    what, documents, folder, context, count = arguments()
    if what == "prepare":
        found = documents_of(documents)
        parts = [found[first : first + _SHARD_DOCUMENTS] for first in range(0, len(found), _SHARD_DOCUMENTS)]
        write_catalog(folder, {"web": [write_given(folder, "web", f"{n}", part) for n, part in enumerate(parts)]})
        return
    shards = ShardSet.open(folder)
    batch_tokens = ROWS * context
    phase = {
        "name": "only",
        "tokens": (count // batch_tokens + 8) * batch_tokens,
        "context_tokens": context,
        "batch_tokens": batch_tokens,
        "learning_rate": {"start": 1e-3},
    }
    settings = ScheduleSettings.model_validate({"phases": [phase], "default_max_epochs": 1e9})
    stream = Stream(shards, resolve(settings, shards.catalog.tokens_per_domain()), 1)

    def serve() -> Iterator[tuple[np.ndarray, ...]]:
        for step in range(stream.schedule.steps):
            if what == "tokens":
                placed = stream.plan(step).placed
                out = np.zeros(batch_tokens, shards.dtype)
                at = placed.row * context + placed.column
                shards.gather("web", "train", placed.document, placed.start, placed.length, out, at)
                yield (out.astype(np.int64),)
            else:
                batch = stream.batch(step)
                yield batch.tokens, batch.targets, batch.positions, batch.document, batch.plan.placed.document

    measured(serve, count)


if __name__ == "__main__":
    main()
