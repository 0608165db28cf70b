"""The fit of a tokeniser in a child process, because a document may end the process that trains on it.

Where training fails, the sample is searched for the documents that are to blame, and they are left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.child import CallError, Child, ChildDiedError
from pipelines.beam.isolation import settled
from pipelines.view import ViewFiles, documents
from shards.errors import UserError
from shards.store import Store
from stages.failing import Failure
from stages.text.hashing import below_share, splitmix64
from stages.tokenizer import Train, untrainable

UNFIT = pa.schema([("doc_id", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])
"""Documents on which no tokeniser can be trained, by doc_id."""

_FAILURES = pa.schema([("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])


@dataclass(frozen=True)
class Sample:
    """A share of the survivors, chosen by hash of doc_id. It can be read again, by any process.

    Attributes:
        root: the run's folder.
        splits: what the final documents of every split are read from.
        share: how many are chosen, 0.0 to 1.0.
        seed: chooses them.
    """

    root: str
    splits: Sequence[ViewFiles]
    share: float
    seed: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns ``doc_id`` and ``text`` of the sample, batch by batch."""
        store = Store(self.root, repairs=True)
        for files in self.splits:
            for batch in documents(store, files):
                keys = batch.column("doc_id").to_numpy().astype(np.uint64) ^ np.uint64(self.seed)
                # Mixed twice: a run's own sample keeps low hashes, of which this is to be a share once more.
                chosen = below_share(splitmix64(splitmix64(keys)), self.share)
                yield batch.select(["doc_id", "text"]).filter(pa.array(chosen))


def fit(sample: Sample, train: Train, vocab_size: int) -> tuple[str, pa.Table]:
    """Train a tokeniser on a sample in a child process.

    Args:
        sample: the documents.
        train: can be pickled, as must its arguments.
        vocab_size: tokens at most.

    Returns:
        The ``tokenizer.json`` text, and the documents that were left out, in the schema ``UNFIT``.

    Raises:
        UserError: as ``train`` does, or if training ends its process and no single document is to blame.
        CallError: for an error of training that no single document is to blame for.
        ChildStartError: if training ends its process on any document.
    """
    with contextlib.closing(Child()) as child:
        unfit = UNFIT.empty_table()
        try:
            return _trained(child, sample, train, vocab_size, unfit), unfit
        except (ChildDiedError, CallError):
            unfit = _unfit(child, sample, train)
        try:
            return _trained(child, sample, train, vocab_size, unfit), unfit
        except ChildDiedError as error:
            raise UserError(
                f"fitting the tokeniser ended its process ({error}), and no single document does",
                place=sample.root,
                remedy="If memory ran out, lower sample_bytes in [tokenizer]",
            ) from error


def _trained(child: Child, sample: Sample, train: Train, vocab_size: int, unfit: pa.Table) -> str:
    left_out = unfit.select(["doc_id"]).combine_chunks().to_batches()
    (found,) = child.call(_train, (sample, train, vocab_size), left_out[0] if left_out else None)
    return cast(str, found.column("tokenizer")[0].as_py())


def _train(argument: tuple[Sample, Train, int], left_out: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """In the child: yield the tokeniser that is fitted on all of the sample but what is left out."""
    sample, train, vocab_size = argument
    yield pa.record_batch({"tokenizer": [train(_texts(sample, left_out), vocab_size)]})


def _texts(sample: Sample, left_out: pa.RecordBatch | None) -> Iterator[str]:
    for batch in sample.batches():
        if left_out is not None:
            batch = batch.filter(pc.invert(pc.is_in(batch.column("doc_id"), left_out.column("doc_id"))))
        yield from batch.column("text").to_pylist()


def _unfit(child: Child, sample: Sample, train: Train) -> pa.Table:
    """Return the documents of a sample on which training fails, or ends its process."""
    rows = []
    for batch in sample.batches():
        ids = batch.column("doc_id").to_pylist()
        for row, failure in sorted(_failures(child, batch.column("text"), train).items()):
            rows.append({"doc_id": ids[row], **vars(failure)})
    return pa.Table.from_pylist(rows, UNFIT)


def _failures(child: Child, texts: pa.Array, train: Train) -> dict[int, Failure]:
    """Return why texts cannot be trained on, by position."""

    def ask(chosen: pa.Array) -> dict[int, Failure]:
        (found,) = child.call(_probe, train, pa.record_batch({"text": chosen}))
        return {row["row"]: Failure(row["reason"], row["detail"]) for row in found.to_pylist()}

    def ask_rows(rows: range) -> dict[int, Failure]:
        return ask(texts.slice(rows.start, len(rows)))

    if not len(texts):
        return {}
    found: dict[int, Failure] = {}
    for rows, said in settled(len(texts), ask_rows, lambda: ask(pa.array(["word"])), "the fit of the tokeniser"):
        failures = {0: said} if isinstance(said, Failure) else said
        found |= {rows.start + row: failure for row, failure in failures.items()}
    return found


def _probe(train: Train, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """In the child: yield why texts cannot be trained on."""
    failures = untrainable(cast(pa.RecordBatch, batch).column("text").to_pylist(), train)
    yield pa.RecordBatch.from_pylist([{"row": row, **vars(failure)} for row, failure in failures.items()], _FAILURES)
