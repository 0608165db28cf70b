"""The training stream at constant context lengths, over one epoch of synthetic shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Case

from shards.catalog import CATALOG_NAME, DomainShards, ShardCatalog, ShardEntry
from shards.files import hash_file
from shards.reader import ShardSet
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from shards.writer import ShardWriter
from trainer.stream import Stream

CONTEXTS = (512, 2_048, 8_192)
BATCH_TOKENS = 1 << 18
DOMAINS = {"books": (0.2, 6_000), "code": (0.3, 1_200), "web": (0.5, 700)}
"""Share of the tokens and mean tokens of a document."""
SHARDS_PER_DOMAIN = 2
VOCABULARY = 50_000


def write_shards(folder: Path, tokens: int) -> ShardSet:
    """Write about ``tokens`` tokens in documents of log-normal lengths, and open them."""
    rng = np.random.default_rng(1)
    domains = {}
    for domain, (share, mean) in DOMAINS.items():
        entries = []
        for shard in range(SHARDS_PER_DOMAIN):
            count = max(2, int(tokens * share / mean / SHARDS_PER_DOMAIN))
            # The mean of a log-normal is exp(mu + sigma^2 / 2).
            lengths = np.maximum(1, rng.lognormal(np.log(mean) - 0.5, 1.0, count)).astype(np.int64)
            entries.append(_shard(folder, domain, shard, lengths, rng))
        domains[domain] = DomainShards(train=tuple(entries), held_out=())
    catalog = ShardCatalog(
        token_dtype="uint16", vocab_size=VOCABULARY, end_of_text=0, tokenizer="bench", domains=domains
    )
    (folder / CATALOG_NAME).write_text(catalog.to_json())
    return ShardSet.open(folder)


def _shard(folder: Path, domain: str, shard: int, lengths: np.ndarray, rng: np.random.Generator) -> ShardEntry:
    writer = ShardWriter(
        folder,
        domain=domain,
        subset="train",
        vocab_size=VOCABULARY,
        end_of_text=0,
        tokenizer_digest="bench",
        name=f"{domain}-{shard}",
    )
    ids = np.arange(len(lengths))
    companion = pa.RecordBatch.from_pydict(
        {
            "doc_id": pa.array(ids),
            "url": pa.array([f"https://{domain}.example.org/{number}" for number in ids], pa.string()),
            "content_hash": pa.nulls(len(ids), pa.binary(16)),
            "language": pa.array(["en"] * len(ids), pa.string()),
            "source_index": pa.array(np.full(len(ids), shard, np.int32)),
            "offset": pa.array(ids),
        }
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    writer.add(rng.integers(1, VOCABULARY, int(offsets[-1]), np.uint32), offsets, companion)
    files = writer.close()
    tokens_sha256, tokens_bytes = hash_file(files.tokens_path)
    documents_sha256, documents_bytes = hash_file(files.documents_path)
    return ShardEntry(
        tokens=files.tokens_path.name,
        documents=files.documents_path.name,
        rows=files.rows,
        token_count=files.tokens,
        tokens_bytes=tokens_bytes,
        documents_bytes=documents_bytes,
        tokens_sha256=tokens_sha256,
        documents_sha256=documents_sha256,
    )


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
