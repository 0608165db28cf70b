"""Shards written for a test in a moment, and read back one document at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.catalog import (
    CATALOG_NAME,
    INDEX_FOLDER,
    SUBSETS,
    DomainShards,
    IndexFile,
    ShardCatalog,
    ShardEntry,
    Subset,
    SubsetShards,
)
from shards.files import hash_file
from shards.listing import write_index
from shards.reader import ShardSet
from shards.writer import ShardFiles, ShardWriter, token_dtype

END = 0
"""The end-of-text token of these shards."""

TOKENIZER = "t"


def rows_of(domain: str, doc_ids: Sequence[int] | npt.NDArray[np.int64], source: int = 0) -> pa.RecordBatch:
    """Return the rows of documents as a writer takes them; URL and offset follow from the id."""
    ids = np.asarray(doc_ids, np.int64)
    return pa.RecordBatch.from_pydict(
        {
            "doc_id": pa.array(ids),
            "url": pa.array([url_of(domain, doc_id) for doc_id in ids.tolist()], pa.string()),
            "content_hash": pa.nulls(len(ids), pa.binary(16)),
            "language": pa.array(["en"] * len(ids), pa.string()),
            "source_index": pa.array([source] * len(ids), pa.int32()),
            "offset": pa.array(100 * ids),
        }
    )


def url_of(domain: str, doc_id: int) -> str:
    """Return the URL that ``rows_of`` gives a document."""
    return f"https://{domain}.example/{doc_id}"


def write_shard(
    folder: Path,
    name: str,
    texts: Sequence[Iterable[int]],
    *,
    domain: str,
    subset: Subset = "train",
    vocab_size: int = 60_000,
    first_id: int = 0,
    source: int = 0,
) -> ShardEntry:
    """Write one shard of texts, each without its end-of-text token, and return its entry in a catalogue."""
    writer = ShardWriter(
        folder,
        domain=domain,
        subset=subset,
        vocab_size=vocab_size,
        end_of_text=END,
        tokenizer_digest=TOKENIZER,
        name=name,
    )
    parts = [np.asarray(text, np.int64) for text in texts]
    values = np.concatenate([np.empty(0, np.int64), *parts])
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    writer.add(values, offsets, rows_of(domain, np.arange(first_id, first_id + len(parts)), source))
    return entry_of(writer.close())


def entry_of(files: ShardFiles) -> ShardEntry:
    """Return the entry of a shard whose files stay where they were written, beside the manifest."""
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


@dataclass(frozen=True)
class Written:
    """The shards of one domain, in order."""

    train: Sequence[ShardEntry] = ()
    held_out: Sequence[ShardEntry] = ()


def write_catalog(folder: Path, domains: Mapping[str, Written], vocab_size: int = 60_000) -> ShardCatalog:
    """Write the manifest of shards that lie in ``folder``, with their lists and indices."""
    (folder / INDEX_FOLDER).mkdir(exist_ok=True)
    catalog = ShardCatalog(
        token_dtype=token_dtype(vocab_size).name,
        vocab_size=vocab_size,
        end_of_text=END,
        tokenizer=TOKENIZER,
        domains={
            domain: DomainShards(
                **{
                    subset: index_of(folder, domain, subset, entries)
                    for subset in SUBSETS
                    if (entries := getattr(shards, subset))
                }
            )
            for domain, shards in domains.items()
        },
    )
    (folder / CATALOG_NAME).write_text(catalog.to_json())
    return catalog


def index_of(folder: Path, domain: str, subset: Subset, entries: Sequence[ShardEntry]) -> SubsetShards:
    """Write the list and the index of one domain and subset into the folder of shards."""
    read: dict[str, npt.NDArray[Any]] = {}

    def lengths(entry: ShardEntry) -> npt.NDArray[Any]:
        # Hard-linked shards are many, and hold the same.
        if entry.lengths_sha256 not in read:
            with pa.memory_map(str(folder / entry.documents)) as file:
                read[entry.lengths_sha256] = np.array(pa.ipc.open_file(file).get_batch(0).column("tokens"))
        return read[entry.lengths_sha256]

    made = write_index(folder / INDEX_FOLDER, domain, subset, entries, lengths)
    files = []
    for path in (made.listing, made.lengths):
        sha256, size = hash_file(path)
        files.append(IndexFile(path=f"{INDEX_FOLDER}/{path.name}", size=size, sha256=sha256))
    return SubsetShards(
        shards=made.shards, documents=made.documents, tokens=made.tokens, listing=files[0], lengths=files[1]
    )


def flip(path: Path, at: float = 0.5, bit: int = 0) -> None:
    """Flip one bit of a file, so far in."""
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1 << bit
    path.write_bytes(data)


def lengths_of(shards: ShardSet, domain: str, subset: Subset = "train") -> list[int]:
    """Return the tokens of every document, end-of-text tokens included."""
    return shards.lengths(domain, subset, np.arange(shards.documents(domain, subset))).tolist()


def tokens_of(shards: ShardSet, domain: str, subset: Subset, document: int) -> npt.NDArray[Any]:
    """Return the tokens of a document, end-of-text token included, of shape (length,) in the shards' dtype."""
    number = np.array([document], np.int64)
    length = shards.locate(domain, subset, number).length
    out = np.empty(int(length[0]), shards.dtype)
    shards.gather(domain, subset, number, 0 * number, length, out, 0 * number)
    return out


Lengths = Mapping[str, Sequence[Sequence[int]]]
"""By domain its shards, each the lengths of its documents in tokens, end-of-text token included."""


def shards_of_lengths(folder: Path, lengths: Lengths, held_out: Mapping[str, Sequence[int]] | None = None) -> ShardSet:
    """Write shards of random tokens, so that a misplaced one shows. Ids start at 1,000 times the shard's number."""
    generator = np.random.default_rng(7)

    def write(domain: str, number: int, rows: Sequence[int], subset: Subset) -> ShardEntry:
        texts = [generator.integers(1, 60_000, length - 1) for length in rows]
        name, first = f"{domain}{number}-{subset}", 1_000 * number
        return write_shard(folder, name, texts, domain=domain, subset=subset, first_id=first, source=number)

    domains = {}
    for domain, shards in lengths.items():
        train = tuple(write(domain, number, rows, "train") for number, rows in enumerate(shards))
        apart = [(held_out or {})[domain]] if domain in (held_out or {}) else []
        held = tuple(write(domain, len(shards), rows, "held_out") for rows in apart)
        domains[domain] = Written(train=train, held_out=held)
    write_catalog(folder, domains)
    return ShardSet.open(folder)


def random_lengths(seed: int, domains: Mapping[str, int], median: float = 12) -> Lengths:
    """Return log-normal lengths of that many documents per domain, in three shards each, some of them empty."""
    generator = np.random.default_rng(seed)
    lengths = {}
    for domain, documents in domains.items():
        drawn = np.maximum(1, generator.lognormal(np.log(median), 1.1, documents)).astype(int).tolist()
        first, second = sorted(generator.integers(0, documents, 2).tolist())
        lengths[domain] = [drawn[:first], drawn[first:second], drawn[second:]]
    return lengths
