"""*encoder*: which library encodes this run, found out on a few of its own documents.

fastokens is to give the tokens of ``tokenizers``, forty times as fast. Where it does not, or does not take the kind of
tokeniser, ``tokenizers`` encodes everything: the bytes of the shards are the same, and the run says so.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.base import ALL, DriverPass, Inputs
from pipelines.beam.child import CallError, Child, ChildDiedError
from pipelines.beam.work_list import Output
from pipelines.tables import is_in
from pipelines.view import ViewFiles, documents
from pipelines.workspace import Job
from shards.errors import UserError
from shards.store import Store
from stages.tokenizer import TokenizerUse
from stages.tokenizer_trial import MAX_BYTES, MAX_CPU_SECONDS, VERDICT, compare, trial

LIBRARIES: Final = ("fastokens", "tokenizers")
MAX_SPLITS: Final = 4
MAX_TEXT_BYTES: Final = 1 << 16
SAMPLE_BYTES: Final = 1 << 18
"""Text that is compared, of at most so many splits and in texts of at most so many bytes: a tenth of a second."""

_TEXT = pa.schema([("text", pa.string())])
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChooseEncoder(DriverPass):
    """Whether fastokens gives the tokens of ``tokenizers`` for the run's tokeniser and documents."""

    name: ClassVar[str] = "encoder"

    documents: Output
    drops: Output
    edits: Output | None
    tokenizer: Output
    unfit: Output
    end_of_text: str

    def section(self) -> Any:
        """Return the end-of-text token, and which libraries were compared: others are compared anew.

        Of a version only the first two numbers, so that no digest changes with a correction.
        """
        return [self.end_of_text, [_release(name) for name in LIBRARIES]]

    def work(self, job: Job, inputs: Inputs) -> None:
        """Compare, and say so where fastokens does not do."""
        drops, unfit = inputs.files(self.drops), inputs.read(self.unfit)
        edits = inputs.files(self.edits) if self.edits else {}
        judged = inputs.files(self.documents).items()
        files = [ViewFiles(entry, drops[split], edits.get(split)) for split, entry in judged]
        path = str(job.store.local_copy(inputs.file(self.tokenizer)))
        why = quick_fault(TokenizerUse(path, self.end_of_text), own_texts(job.store, files, unfit))
        if why is not None:
            _log.warning("fastokens does not do for this tokeniser, so tokenizers encodes, more slowly: %s", why)
        job.commit(ALL, {}, {"quick": why is None, "why": why})


def _release(library: str) -> list[str]:
    """Return the first two numbers of an installed version; none where it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(library).split(".")[:2]
    return []


def own_texts(store: Store, files: Sequence[ViewFiles], unfit: pa.Table) -> pa.RecordBatch:
    """Return a few of a run's documents: the first of splits that lie evenly over all.

    Args:
        store: the run's.
        files: what the final documents of every split are read from.
        unfit: documents on which a tokeniser may break; they are left out.
    """
    step = -(-len(files) // MAX_SPLITS)
    chosen = files[:: max(1, step)]
    left_out = unfit.column("doc_id").to_numpy()
    texts: list[str] = []
    for one in chosen:
        texts += _first_texts(documents(store, one), left_out, SAMPLE_BYTES // len(chosen))
    return pa.record_batch({"text": pa.array(texts, pa.string())}, schema=_TEXT)


def _first_texts(batches: Iterator[pa.RecordBatch], left_out: Any, limit: int) -> list[str]:
    texts: list[str] = []
    for batch in batches:
        text = batch.column("text")
        lengths = pc.binary_length(text)
        fits = pc.and_(
            pc.less_equal(lengths, MAX_TEXT_BYTES), pa.array(~is_in(batch.column("doc_id").to_numpy(), left_out))
        )
        for each, length in zip(text.filter(fits).to_pylist(), lengths.filter(fits).to_pylist(), strict=True):
            limit -= length
            if limit < 0:
                return texts
            texts.append(each)
    return texts


def quick_fault(use: TokenizerUse, documents: pa.RecordBatch) -> str | None:
    """Return why fastokens does not do for a tokeniser and documents with the column ``text``; None if it does."""
    with contextlib.closing(Child()) as child:
        try:
            (found,) = child.call(compare, use, documents)
        except ChildDiedError as error:
            return f"comparing both ended the process ({error})"
        except CallError as error:
            return error.failure.detail
    why: str | None = found.cast(VERDICT).column("why")[0].as_py()
    return why


def require_usable(use: TokenizerUse, cpu_seconds: int = MAX_CPU_SECONDS) -> None:
    """Try a tokeniser on a plain text, in a child process with limits on its time and memory.

    Raises:
        UserError: if it is none, fails on the text, does not come to an end, or cannot end a text.
    """
    with contextlib.closing(Child()) as child:
        try:
            list(child.call(trial, (use, cpu_seconds)))
        except (ChildDiedError, CallError) as error:
            raise UserError(
                f"the tokeniser does not get through three plain lines of text within {cpu_seconds} CPU-seconds and "
                f"{MAX_BYTES >> 30} GiB",
                place=use.path,
                remedy="Look at its normaliser and its patterns: one that matches the empty string may never end",
            ) from error
