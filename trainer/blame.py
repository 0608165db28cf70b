"""Which documents a step trained on: for whoever looks at a loss and wants to know what did it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from shards.reader import ShardSet
from trainer.batch import StepPlan
from trainer.config import Job
from trainer.stream import Stream


def content_digest(plan: StepPlan) -> str:
    """Return a digest of what a step serves: the first 16 hex digits of sha256 over its spans of documents."""
    digest = hashlib.sha256()
    for name in ("domain", "document", "start", "length"):
        digest.update(np.ascontiguousarray(getattr(plan.placed, name), dtype="<i8").tobytes())
    return digest.hexdigest()[:16]


def documents(shards: ShardSet, plan: StepPlan) -> Iterator[dict[str, Any]]:
    """Yield the spans of a step in the order of its rows, each with its place and where its document came from.

    Beside the columns of ``ShardSet.trace`` there are the row of the step, and the first token and the tokens of the
    span.
    """
    placed = plan.placed
    for index in range(len(placed.row)):
        domain, document = plan.domains[int(placed.domain[index])], int(placed.document[index])
        start, length = int(placed.start[index]), int(placed.length[index])
        source = shards.trace(domain, "train", document, start)
        source["content_hash"] = source["content_hash"].hex() if source["content_hash"] else None
        yield {"step_row": int(placed.row[index]), "first_token": start, "span_tokens": length, **source}


def tokens_of(shards: ShardSet, span: Mapping[str, Any], plan: StepPlan, index: int) -> list[int]:
    """Return the tokens of a span."""
    out = np.empty(span["span_tokens"], np.int64)
    one = plan.placed.take(slice(index, index + 1))
    shards.gather(span["domain"], "train", one.document, one.start, one.length, out, np.zeros(1, np.int64))
    return [int(token) for token in out]


def plan_of(job: Job, shards: ShardSet, step: int, steps_of_last_phase: int | None = None) -> StepPlan:
    """Plan one step of a training, counted from 1 as in its log.

    Args:
        job: the training.
        shards: its shards.
        step: the step.
        steps_of_last_phase: what a checkpoint remembers of a schedule of exact epochs.

    Raises:
        ValueError: if the schedule does not have this step.
    """
    schedule = job.schedule if steps_of_last_phase is None else job.schedule.with_last_phase(steps_of_last_phase)
    stream = Stream(shards, schedule, job.training.seed, window_shards=job.training.window_shards)
    return stream.plan(step - 1)
