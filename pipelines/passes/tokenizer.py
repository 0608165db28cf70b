"""*fit tokeniser*: a byte-level BPE fitted on a sample of survivors, or the tokeniser that the recipe names."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pipelines.beam.base import ALL, DriverPass, Inputs, NothingLeftError
from pipelines.beam.work_list import Output
from pipelines.passes.keys import is_in
from pipelines.tables import read_batches, read_table
from pipelines.workspace import Job, Workspace
from shards.errors import UserError
from shards.store import FileEntry, Store, hash_file
from stages.text.hashing import below_share, splitmix64
from stages.tokenizer import Encoder, fit_bpe, load_encoder


def survivors(store: Store, documents: FileEntry, drops: FileEntry) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a split that nothing dropped, batch by batch, in doc_id order."""
    gone = read_table(store, drops, ["doc_id"]).column("doc_id").to_numpy()
    for batch in read_batches(store, documents):
        yield batch.filter(pa.array(~is_in(batch.column("doc_id").to_numpy(), gone)))


@dataclass(frozen=True)
class CopyTokenizer(DriverPass):
    """The tokeniser that the recipe names, as a published ``tokenizer.json``."""

    name: ClassVar[str] = "tokenizer"

    path: str
    end_of_text: str

    def section(self) -> Any:
        """Return the end-of-text token, and what the file holds; its path is not part of it."""
        return [self.end_of_text, hash_file(Path(self.path))[0]]

    def work(self, job: Job, inputs: Inputs) -> None:
        """Copy it."""
        _publish(job, Path(self.path).read_bytes().decode("utf-8"), self.end_of_text)


@dataclass(frozen=True)
class FitTokenizer(DriverPass):
    """A tokeniser fitted on a sample of survivors, as a published ``tokenizer.json``."""

    name: ClassVar[str] = "tokenizer"

    documents: Output
    drops: Output
    survivor_bytes: Output
    vocab_size: int
    sample_bytes: int
    end_of_text: str
    seed: int

    def work(self, job: Job, inputs: Inputs) -> None:
        """Fit it."""
        _publish(job, fit_bpe(self._sample(job.store, inputs), self.vocab_size, self.end_of_text), self.end_of_text)

    def _sample(self, store: Store, inputs: Inputs) -> _Sample:
        total = sum(inputs.statistics(self.survivor_bytes).values())
        if total == 0:
            raise NothingLeftError("no document survived, so there is nothing to fit a tokeniser on")
        drops = inputs.files(self.drops)
        splits = [(documents, drops[split]) for split, documents in inputs.files(self.documents).items()]
        return _Sample(store, splits, min(1.0, self.sample_bytes / total), self.seed)


@dataclass(frozen=True)
class _Sample:
    """A share of the survivors' texts, chosen by hash of doc_id: the same texts each time that it is iterated over."""

    store: Store
    splits: Sequence[tuple[FileEntry, FileEntry]]
    share: float
    seed: int

    def __iter__(self) -> Iterator[str]:
        for documents, drops in self.splits:
            for batch in survivors(self.store, documents, drops):
                keys = batch.column("doc_id").to_numpy().astype(np.uint64) ^ np.uint64(self.seed)
                # Mixed twice: a run's own sample keeps low hashes, of which this is to be a share once more.
                chosen = below_share(splitmix64(splitmix64(keys)), self.share)
                yield from batch.column("text").filter(pa.array(chosen)).to_pylist()


def _publish(job: Job, text: str, end_of_text: str) -> None:
    with job.store.scratch() as scratch:
        path = scratch / "tokenizer.json"
        path.write_bytes(text.encode("utf-8"))
        # What is no tokeniser, or has no end of text, is refused before it is published.
        Encoder(str(path)).token_id(end_of_text, "recipe, key tokenizer.end_of_text")
        entry = job.store.publish(path, "tokenizer", "tokenizer", 1)
    job.commit(ALL, {"tokenizer": entry})


def tokenizer_path(workspace: Workspace) -> str:
    """Return the path of the tokeniser that the recipe names.

    Raises:
        UserError: if it is missing.
    """
    path = workspace.input_path(workspace.recipe.tokenizer.file or "")
    if not Path(path).is_file():
        raise UserError("the tokeniser's file is missing", place=f"recipe, key tokenizer.file: {path}")
    return path


def check_tokenizer(workspace: Workspace) -> None:
    """Check the tokeniser that the recipe names, if any, before documents are read.

    Raises:
        UserError: if it is missing, no tokeniser, or without the end-of-text token.
    """
    settings = workspace.recipe.tokenizer
    if settings.file:
        Encoder(tokenizer_path(workspace)).token_id(settings.end_of_text, "recipe, key tokenizer.end_of_text")


@functools.lru_cache(maxsize=1)
def encoder_of(root: str, entry: FileEntry) -> Encoder:
    """Return the encoder of a published tokeniser, loaded once per process."""
    return load_encoder(Store(root, repairs=True).local_copy(entry))
