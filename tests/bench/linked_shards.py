"""Folders of token shards for benchmarks: a few that are written, and as many hard links to them as are wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shards.catalog import CATALOG_NAME, INDEX_FOLDER, DomainShards, IndexFile, ShardCatalog, ShardEntry, SubsetShards
from shards.files import hash_file
from shards.listing import write_index
from shards.reader import ShardSet
from shards.writer import ShardWriter

VOCABULARY = 50_000


def web_like(count: int, mean: int, rng: np.random.Generator) -> np.ndarray:
    """Draw lengths of documents, in tokens: log-normal, as those of web pages are."""
    # The mean of a log-normal is exp(mu + sigma^2 / 2).
    return np.maximum(2, rng.lognormal(np.log(mean) - 0.5, 1.0, count)).astype(np.int64)


def write_shard(folder: Path, domain: str, name: str, lengths: np.ndarray, rng: np.random.Generator) -> ShardEntry:
    """Write one shard of random documents of those lengths, end-of-text tokens included."""
    offsets = np.concatenate([[0], np.cumsum(lengths - 1)])
    return _write(folder, domain, name, rng.integers(1, VOCABULARY, int(offsets[-1]), np.uint16), offsets)


def write_given(folder: Path, domain: str, name: str, documents: Sequence[np.ndarray]) -> ShardEntry:
    """Write one shard of documents, each ended by the end-of-text token."""
    offsets = np.cumsum([0, *(len(document) - 1 for document in documents)])
    return _write(folder, domain, name, np.concatenate([document[:-1] for document in documents]), offsets)


def _write(folder: Path, domain: str, name: str, tokens: np.ndarray, offsets: np.ndarray) -> ShardEntry:
    writer = ShardWriter(
        folder,
        domain=domain,
        subset="train",
        vocab_size=VOCABULARY,
        end_of_text=0,
        tokenizer_digest="bench",
        name=name,
    )
    ids = np.arange(len(offsets) - 1)
    companion = pa.RecordBatch.from_pydict(
        {
            "doc_id": pa.array(ids),
            "url": pa.array([f"https://{domain}.example.org/{number}" for number in ids], pa.string()),
            "content_hash": pa.nulls(len(ids), pa.binary(16)),
            "language": pa.array(["en"] * len(ids), pa.string()),
            "source_index": pa.array(np.zeros(len(ids), np.int32)),
            "offset": pa.array(ids),
        }
    )
    writer.add(tokens, offsets, companion)
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
        values_at=files.values_at,
        tokens_sha256=tokens_sha256,
        documents_sha256=documents_sha256,
        lengths_sha256=files.lengths_sha256,
    )


def linked(folder: Path, written: Path, entries: Sequence[ShardEntry], count: int) -> list[ShardEntry]:
    """Link ``count`` shards into a folder, which are those written in ``written`` again and again."""
    found = []
    for number in range(count):
        entry = entries[number % len(entries)]
        names = {kind: f"{number:06d}.{kind}.arrow" for kind in ("tokens", "documents")}
        for kind, name in names.items():
            os.link(written / getattr(entry, kind), folder / name)
        found.append(entry.model_copy(update=names))
    return found


def write_catalog(folder: Path, domains: Mapping[str, Sequence[ShardEntry]]) -> ShardSet:
    """Write the manifest, the lists and the indices of shards that lie in a folder, and open it."""
    (folder / INDEX_FOLDER).mkdir()
    catalog = ShardCatalog(
        token_dtype="uint16",
        vocab_size=VOCABULARY,
        end_of_text=0,
        tokenizer="bench",
        domains={name: DomainShards(train=_index(folder, name, entries)) for name, entries in domains.items()},
    )
    (folder / CATALOG_NAME).write_text(catalog.to_json())
    return ShardSet.open(folder)


def _index(folder: Path, domain: str, entries: Sequence[ShardEntry]) -> SubsetShards:
    read: dict[str, np.ndarray] = {}

    def lengths(entry: ShardEntry) -> np.ndarray:
        # Links to one file hold the same lengths.
        if entry.lengths_sha256 not in read:
            batch = pa.ipc.open_file(pa.memory_map(str(folder / entry.documents))).get_batch(0)
            read[entry.lengths_sha256] = np.array(batch.column("tokens"))
        return read[entry.lengths_sha256]

    made = write_index(folder / INDEX_FOLDER, domain, "train", entries, lengths)
    files: list[Any] = []
    for path in (made.listing, made.lengths):
        sha256, size = hash_file(path)
        files.append(IndexFile(path=f"{INDEX_FOLDER}/{path.name}", size=size, sha256=sha256))
    return SubsetShards(
        shards=made.shards, documents=made.documents, tokens=made.tokens, listing=files[0], lengths=files[1]
    )
