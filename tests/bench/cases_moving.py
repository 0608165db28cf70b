"""The links between stages: marking, Beam around it, the wire form, the deduplication kernels, and writing shards."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from corpus import Corpus
from harness import Case

import pipelines.beam.runners  # noqa: F401  (sets what FnApiRunner needs to lose nothing)
from pipelines.beam.apply import Apply
from pipelines.beam.coder import RecordBatchCoder
from shards.writer import ShardWriter
from stages.base import Measured, stage
from stages.checks import Check
from stages.dedup.components import components, forest
from stages.dedup.exact import EXACT_KEY, exact_drops
from stages.dedup.minhash import band_keys
from stages.dedup.near import ShingleSets, linked, near_keys, survivors
from stages.marking import live_mask, mark
from stages.scores import Count
from stages.text.shingles import batch_shingles

APPLIED, PIECES = 8, 400
KEYS_PER_DOCUMENT = 400
"""Kernels over keys are measured on so many keys for each document: alone, the documents' own would take no time."""


@stage
class KeepAll:
    """Keeps every row."""

    name: ClassVar[str] = "keep_all"

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Measure nothing."""
        return Measured()


@stage
class DropFirst:
    """Drops the first row, so that marks are written."""

    name: ClassVar[str] = "drop_first"
    scores = (Count("row"),)
    checks = (Check("first", "row", min=1),)

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Count rows."""
        return Measured({"row": np.arange(batch.num_rows)})


def cases(corpus: Corpus, folder: Path) -> Iterator[Case]:
    """Yield the cases."""
    batches = corpus.batches
    documents, size = len(corpus.texts), corpus.text_bytes
    idle, first = KeepAll(), DropFirst()
    half = [mark(DropHalf(), batch) for batch in batches]
    rows = [pa.array(np.flatnonzero(live_mask(idle, batch))) for batch in half]
    yield Case(
        "mark",
        lambda: [mark(idle, batch) for batch in batches],
        {"is_null alone": lambda: [pc.is_null(batch.column("dropped_by")) for batch in batches]},
        documents,
        size,
        note="a stage that does nothing over unmarked batches: the cost of being a stage",
    )
    yield Case(
        "mark_half",
        lambda: [mark(first, batch) for batch in half],
        {"take alone": lambda: [batch.take(index) for batch, index in zip(half, rows, strict=True)]},
        documents,
        size,
        note="a stage that drops one row of batches whose every second row is marked already",
    )
    yield _applied(corpus)
    yield from _wire(corpus)
    yield from _keys(documents)
    yield _verification(corpus)
    yield _shard_writer(folder, size)


@stage
class DropHalf:
    """Drops every second row."""

    name: ClassVar[str] = "drop_half"
    scores = (Count("parity"),)
    checks = (Check("odd", "parity", min=1),)

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Tell rows apart by turns."""
        return Measured({"parity": np.arange(batch.num_rows) % 2})


# Beside the pipeline: Beam would pickle what a function carries, and a slice is pickled with its whole parent.
_pieces: list[pa.RecordBatch] = []


def _given_pieces(_: int) -> list[pa.RecordBatch]:
    return _pieces


def _applied(corpus: Corpus) -> Case:
    idle = KeepAll()
    # Small batches, so that what Beam costs by element is seen beside what it costs by pipeline.
    pieces = [batch.slice(at, 10) for batch in corpus.batches for at in range(0, batch.num_rows, 10)]
    pieces = (pieces * -(-PIECES // len(pieces)))[:PIECES]
    _pieces[:] = pieces

    def run(stages: int) -> None:
        pipeline = beam.Pipeline(runner=FnApiRunner())
        batches = pipeline | beam.Create([0]) | beam.FlatMap(_given_pieces).with_output_types(pa.RecordBatch)
        for number in range(stages):
            batches = batches | str(number) >> Apply(idle)
        pipeline.run().wait_until_finish()

    return Case(
        "apply",
        lambda: run(APPLIED),
        {"mark alone": lambda: [mark(idle, piece) for _ in range(APPLIED) for piece in pieces]},
        APPLIED * len(pieces),
        minus=lambda: run(0),
        note=f"{APPLIED} idle stages on FnApiRunner, less a pipeline of none; documents are batches of 10 x stages",
    )


def _wire(corpus: Corpus) -> Iterator[Case]:
    coder, batches = RecordBatchCoder(), corpus.batches
    coded, pickled = [coder.encode(batch) for batch in batches], [pickle.dumps(batch) for batch in batches]
    size = sum(map(len, coded))
    yield Case(
        "encode_batch",
        lambda: [coder.encode(batch) for batch in batches],
        {"memcpy": lambda: [bytearray(data) for data in coded], "pickle": lambda: [pickle.dumps(b) for b in batches]},
        len(corpus.texts),
        size,
        note="Arrow IPC; pickle is what Beam does by default",
    )
    yield Case(
        "decode_batch",
        lambda: [coder.decode(data) for data in coded],
        {"pickle": lambda: [pickle.loads(data) for data in pickled]},
        len(corpus.texts),
        size,
        note="Arrow IPC, without a copy",
    )


def _keys(documents: int) -> Iterator[Case]:
    count = documents * KEYS_PER_DOCUMENT
    rng = np.random.default_rng(1)
    keys = np.zeros(count, EXACT_KEY)
    # One in ten repeats another.
    which = rng.integers(0, count, count)
    which[: count * 9 // 10] = np.arange(count * 9 // 10)
    words = rng.integers(0, 1 << 63, (count, 2), np.uint64)[which]
    keys["hash_hi"], keys["hash_lo"], keys["doc_id"] = words[:, 0], words[:, 1], np.arange(count)
    yield Case(
        "exact_dedup",
        lambda: exact_drops([keys]),
        {"np.unique of 64 bits": lambda: np.unique(words[:, 0])},
        count,
        keys.nbytes,
        note="documents are keys; one in ten repeats another",
    )
    rows = count // 20
    signatures = rng.integers(0, 1 << 32, (rows, 112), np.uint32)
    signatures[: rows // 10] = signatures[rows // 2 : rows // 2 + rows // 10]
    ids, sizes = np.arange(rows), np.full(rows, 300)
    yield Case(
        "near_candidates",
        lambda: forest(linked([near_keys(band_keys(signatures, 16, 7), ids, sizes)], 0.8)[1]),
        {"np.argsort of the keys": lambda: np.argsort(band_keys(signatures, 16, 7).ravel())},
        rows,
        signatures.nbytes,
        note="documents are signatures, 16 bands of 7; one in ten repeats another",
    )
    a, b = rng.integers(0, count, (2, count))
    yield Case(
        "components",
        lambda: components(a, b),
        {"np.argsort of the ends": lambda: np.argsort(np.concatenate([a, b]))},
        count,
        a.nbytes * 2,
        note="documents are edges of a random graph",
    )


def _verification(corpus: Corpus) -> Case:
    offsets, hashes = batch_shingles(pa.array(corpus.texts), 5)
    count = len(corpus.texts)
    # Each shares a bucket with eight others, of which it is no near-duplicate.
    keys = (np.arange(8 * count, dtype=np.uint64).reshape(count, 8) // np.uint64(9)) % np.uint64(count)
    documents = ShingleSets(np.arange(count), np.zeros(count, np.int64), keys, offsets, hashes)
    pairs = survivors(documents, 0.8, 16).comparisons
    sets = [hashes[offsets[row] : offsets[row + 1]] for row in range(count)]
    a, b = np.random.default_rng(1).integers(0, count, (2, max(1, pairs)))

    def ours() -> None:
        survivors(documents, 0.8, 16)

    def peer() -> None:
        for one, other in zip(a.tolist(), b.tolist(), strict=True):
            np.intersect1d(sets[one], sets[other], assume_unique=True)

    return Case(
        "near_verify",
        ours,
        {"np.intersect1d": peer},
        max(1, pairs),
        int(sum(sets[one].nbytes + sets[other].nbytes for one, other in zip(a.tolist(), b.tolist(), strict=True))),
        note="survivors among documents of shared buckets; documents are pairs compared",
    )


def _shard_writer(folder: Path, size: int) -> Case:
    lengths = np.full(max(1, size // 2_000), 500)
    tokens = np.random.default_rng(1).integers(1, 50_000, int(lengths.sum()), np.uint32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(len(lengths))
    companion = pa.RecordBatch.from_pydict(
        {
            "doc_id": pa.array(ids),
            "url": pa.array([f"https://example.org/{number}" for number in ids], pa.string()),
            "content_hash": pa.nulls(len(ids), pa.binary(16)),
            "language": pa.array(["en"] * len(ids), pa.string()),
            "source_index": pa.array(np.zeros(len(ids), np.int32)),
            "offset": pa.array(ids),
        }
    )

    def ours() -> Any:
        writer = ShardWriter(
            folder, domain="web", subset="train", vocab_size=50_000, end_of_text=0, tokenizer_digest="bench"
        )
        writer.add(tokens, offsets, companion)
        return writer.close()

    return Case(
        "write_shard",
        ours,
        {"narrow and tofile": lambda: tokens.astype(np.uint16).tofile(folder / "raw.tokens")},
        len(ids),
        tokens.nbytes,
        len(tokens),
        note="tokens and companion, into the page cache",
    )
