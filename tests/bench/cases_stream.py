"""The training stream at constant context lengths, over one epoch of synthetic shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import Case
from linked_shards import VOCABULARY, web_like, write_catalog, write_shard

from shards.reader import ShardSet
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from trainer.stream import Stream

CONTEXTS = (512, 2_048, 8_192)
BATCH_TOKENS = 1 << 18
DOMAINS = {"books": (0.2, 6_000), "code": (0.3, 1_200), "web": (0.5, 700)}
"""Share of the tokens and mean tokens of a document."""
SHARDS_PER_DOMAIN = 2


def write_shards(folder: Path, tokens: int) -> ShardSet:
    """Write about ``tokens`` tokens in documents of log-normal lengths, and open them."""
    rng = np.random.default_rng(1)
    domains = {}
    for domain, (share, mean) in DOMAINS.items():
        count = max(2, int(tokens * share / mean / SHARDS_PER_DOMAIN))
        domains[domain] = [
            write_shard(folder, domain, f"{domain}-{shard}", web_like(count, mean, rng), rng)
            for shard in range(SHARDS_PER_DOMAIN)
        ]
    return write_catalog(folder, domains)


def _schedule(shards: ShardSet, context: int) -> Schedule:
    held = sum(shards.catalog.tokens_per_domain("train").values())
    batch = max(context, min(BATCH_TOKENS, held // 4) // context * context)
    phase = {
        "name": "only",
        "tokens": held // batch * batch or batch,
        "context_tokens": context,
        "batch_tokens": batch,
        "learning_rate": {"shape": "constant", "start": 1e-3},
    }
    settings = ScheduleSettings.model_validate({"phases": [phase], "default_max_epochs": 1e3})
    return resolve(settings, shards.catalog.tokens_per_domain("train"))


def cases(folder: Path, tokens: int) -> Iterator[Case]:
    """Yield the cases; the shards hold about ``tokens`` tokens."""
    shards = write_shards(folder, tokens)
    documents = sum(shards.documents(domain) for domain in shards.domains)
    for context in CONTEXTS:
        schedule = _schedule(shards, context)
        packed = np.random.default_rng(1).integers(0, VOCABULARY, schedule.tokens, np.uint16)
        yield Case(
            f"stream_{context}",
            lambda schedule=schedule: _serve(shards, schedule),
            {
                "planning alone": lambda schedule=schedule: _plan(shards, schedule),
                "tokens and targets": lambda schedule=schedule: _serve(shards, schedule, whole=False),
                "the four arrays, filled": lambda packed=packed: _fill(packed),
                "widening copy": lambda packed=packed: _copy(packed, np.int64),
                "memcpy": lambda packed=packed: _copy(packed, np.uint16),
            },
            documents,
            2 * schedule.tokens,
            schedule.tokens,
            note="tokens, targets, document numbers and positions of every row of an epoch, shuffled and packed",
        )


def _serve(shards: ShardSet, schedule: Schedule, *, whole: bool = True) -> int:
    stream = Stream(shards, schedule, seed=1)
    served = 0
    for step in range(schedule.steps):
        batch = stream.batch(step)
        served += batch.tokens.size + batch.targets.size
        if whole:
            served += batch.document.size + batch.positions.size
    return served


def _plan(shards: ShardSet, schedule: Schedule) -> int:
    stream = Stream(shards, schedule, seed=1)
    return sum(stream.plan(step).rows for step in range(schedule.steps))


def _fill(packed: np.ndarray) -> None:
    """Fill arrays of the types and sizes that the stream returns, a batch at a time: no order, no documents."""
    for start in range(0, len(packed), BATCH_TOKENS):
        part = packed[start : start + BATCH_TOKENS]
        tokens = part.astype(np.int64)
        targets = np.empty_like(tokens)
        targets[:-1] = tokens[1:]
        np.arange(len(part), dtype=np.int32)
        np.zeros(len(part), np.int32)[:] = 1


def _copy(packed: np.ndarray, dtype: Any) -> None:
    """Copy batches into one buffer, as a loader without anything to decide would."""
    out = np.empty(BATCH_TOKENS, dtype)
    for start in range(0, len(packed), BATCH_TOKENS):
        part = packed[start : start + BATCH_TOKENS]
        out[: len(part)] = part
