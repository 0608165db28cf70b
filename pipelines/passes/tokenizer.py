"""*fit tokeniser*: a byte-level BPE fitted on a sample of survivors, or the tokeniser that the recipe names."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pipelines.beam.base import ALL, DriverPass, Inputs, NothingLeftError
from pipelines.beam.work_list import Output
from pipelines.passes.encoder import require_usable
from pipelines.passes.fit_tokenizer import UNFIT, Sample, fit
from pipelines.tables import publish_table
from pipelines.view import ViewFiles
from pipelines.workspace import Job, Workspace
from shards.errors import UserError
from shards.files import hash_file
from shards.store import FileEntry, Store
from stages.tokenizer import Encoder, TokenizerUse, fit_bpe, load_encoder


@dataclass(frozen=True)
class CopyTokenizer(DriverPass):
    """The tokeniser that the recipe names, as a published ``tokenizer.json``."""

    name: ClassVar[str] = "tokenizer"
    version: ClassVar[int] = 2

    path: str
    end_of_text: str

    def section(self) -> Any:
        """Return the end-of-text token, and what the file holds; its path is not part of it."""
        return [self.end_of_text, hash_file(Path(self.path))[0]]

    def work(self, job: Job, inputs: Inputs) -> None:
        """Copy it."""
        _publish(job, Path(self.path).read_bytes().decode("utf-8"), self.end_of_text, UNFIT.empty_table())


@dataclass(frozen=True)
class FitTokenizer(DriverPass):
    """A tokeniser fitted on a sample of survivors, as a published ``tokenizer.json``, and what had to be left out."""

    name: ClassVar[str] = "tokenizer"
    version: ClassVar[int] = 2

    documents: Output
    drops: Output
    edits: Output | None
    survivor_bytes: Output
    vocab_size: int
    sample_bytes: int
    end_of_text: str
    seed: int

    def work(self, job: Job, inputs: Inputs) -> None:
        """Fit it."""
        train = functools.partial(fit_bpe, end_of_text=self.end_of_text)
        text, unfit = fit(self.sample(job.root, inputs), train, self.vocab_size)
        _publish(job, text, self.end_of_text, unfit)

    def sample(self, root: str, inputs: Inputs) -> Sample:
        """Return the sample of survivors that it is fitted on.

        Raises:
            NothingLeftError: if nothing survived.
        """
        total = sum(inputs.statistics(self.survivor_bytes).values())
        if total == 0:
            raise NothingLeftError("no document survived, so there is nothing to fit a tokeniser on")
        drops, edits = inputs.files(self.drops), inputs.files(self.edits) if self.edits else {}
        splits = [
            ViewFiles(judged, drops[split], edits.get(split)) for split, judged in inputs.files(self.documents).items()
        ]
        return Sample(root, splits, min(1.0, self.sample_bytes / total), self.seed)


def _publish(job: Job, text: str, end_of_text: str, unfit: pa.Table) -> None:
    with job.store.scratch() as scratch:
        path = scratch / "tokenizer.json"
        path.write_bytes(text.encode("utf-8"))
        # What is not a tokeniser, or lacks the end-of-text token, is refused before it is published.
        Encoder(str(path), end_of_text).token_id(end_of_text, "recipe, key tokenizer.end_of_text")
        entry = job.store.publish(path, "tokenizer", "tokenizer", 1)
    unfit_entry = publish_table(job.store, unfit, "tokenizer", "unfit")
    job.commit(ALL, {"tokenizer": entry, "unfit": unfit_entry})


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
        UserError: if it is missing, or ``require_usable`` refuses it.
    """
    settings = workspace.recipe.tokenizer
    if settings.file:
        require_usable(TokenizerUse(tokenizer_path(workspace), settings.end_of_text))


@functools.lru_cache(maxsize=2)
def encoder_of(root: str, entry: FileEntry, end_of_text: str, quick: bool = True) -> Encoder:
    """Return the encoder of a published tokeniser, loaded once per process."""
    return load_encoder(tokenizer_use(Store(root, repairs=True), entry, end_of_text, quick))


def tokenizer_use(store: Store, entry: FileEntry, end_of_text: str, quick: bool) -> TokenizerUse:
    """Return how a published tokeniser is used in this process."""
    return TokenizerUse(str(store.local_copy(entry)), end_of_text, quick)
