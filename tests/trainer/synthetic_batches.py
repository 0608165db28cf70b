"""Micro-batches of random documents, without shards: what an engine takes, the same on any number of ranks."""

from __future__ import annotations

import numpy as np

from trainer.batch import IGNORE, Batch, Placed, StepPlan, micro_batches
from trainer.micro_batch import filled, most_per_rank

VOCABULARY = 61
CONTEXT = 16
DOMAINS = ("books", "web")


def step_rows(step: int, rows: int = 6) -> Batch:
    """Return the rows of a step: two documents in each, the last slot of the first row is padding."""
    generator = np.random.default_rng(step)
    cuts = generator.integers(2, CONTEXT - 3, rows)
    row = np.repeat(np.arange(rows), 2)
    column = np.stack([np.zeros(rows, np.int64), cuts], 1).flatten()
    length = np.stack([cuts, CONTEXT - cuts], 1).flatten()
    length[1] -= 1
    domain = np.arange(rows) % 2
    zeros = np.zeros(2 * rows, np.int64)
    placed = Placed(row, column, np.repeat(domain, 2), np.arange(2 * rows), zeros, length, np.ones(2 * rows, np.bool_))
    tokens = generator.integers(0, VOCABULARY, (rows, CONTEXT))
    targets = np.full((rows, CONTEXT), IGNORE)
    targets[:, :-1] = tokens[:, 1:]
    targets[row, column + length - 1] = IGNORE
    targets[0, -2:] = IGNORE
    return Batch(StepPlan(CONTEXT, DOMAINS, domain, placed), tokens, targets)


def part(batch: Batch, rows: slice) -> Batch:
    """Return some rows of a batch."""
    return Batch(batch.plan.part(rows), batch.tokens[rows], batch.targets[rows])


def micro_batches_of(step: int, rank: int, ranks: int, *, rows: int = 6, size: int = 1) -> list[Batch]:
    """Return the micro-batches of a rank, filled up so that every rank has equally many."""
    whole = step_rows(step, rows)
    parts = [part(whole, each) for each in micro_batches(rows, size, rank, ranks)]
    return filled(parts, most_per_rank(rows, size, ranks), CONTEXT)
