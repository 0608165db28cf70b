"""Calls that may kill their process, made by a child process: where one dies, a document has failed, and the rest not.

A unit whose earlier attempt never ended (``pipelines.beam.attempts``) says in the metadata of its batches that it is
isolated. ``mark``, ``encode`` and ``read`` then give what they give otherwise, but for documents that kill.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Final, TypeVar, cast

import numpy as np
import pyarrow as pa

from pipelines.beam.child import CallError, Child, ChildDiedError, ChildStartError
from shards.schema import split_doc_id
from stages import failing, marking, readers
from stages.base import Stage, Verdict, link_of
from stages.failing import KILLED_PROCESS, NOT_OF_A_DOCUMENT, Failure
from stages.readers import Digest
from stages.readers.base import BatchBuilder, OpenInput, Row, Source
from stages.tokenizer import Encoded, TokenizerUse, joined_tokens, load_encoder

T = TypeVar("T")

_ISOLATED: Final = b"headrace.isolated"
_COLUMN: Final = "column."
_FAILURES: Final = pa.schema([("row", pa.int64()), ("reason", pa.string()), ("detail", pa.string())])

_child = Child()
"""One for the stages and tokenisers of this process, so that it needs the memory of one more worker at most."""


def close() -> None:
    """End the child process, if there is one; the next isolated call starts another."""
    _child.close()


atexit.register(close)


def isolate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches that say they are isolated."""
    for batch in batches:
        yield batch.replace_schema_metadata({**(batch.schema.metadata or {}), _ISOLATED: b"1"})


def is_isolated(batch: pa.RecordBatch) -> bool:
    """Return whether calls on this batch are to be made by a child process."""
    return _ISOLATED in (batch.schema.metadata or {})


def mark(stage: Stage, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Apply ``stage`` to ``batch`` as ``stages.marking.mark`` does, in a child process where the batch is isolated."""
    return marking.mark(stage, batch, isolated_judge if is_isolated(batch) else None)


def isolated_judge(stage: Stage, batch: pa.RecordBatch) -> Verdict:
    """Return the verdict of ``stage`` on rows that it is to judge, texts that kill the process marked as failed.

    Raises:
        ChildStartError: if any document kills it.
        CallError: for an error of the stage that is of no document.
    """

    def judge(rows: range) -> Verdict:
        return _unpacked(*_child.call(_judge, stage, batch.slice(rows.start, len(rows))))

    def judge_harmless() -> None:
        list(_child.call(_judge, stage, failing.harmless(batch.schema)))

    return marking.joined(stage, batch, settled(batch.num_rows, judge, judge_harmless, link_of(stage)))


def encode(tokenizer: TokenizerUse, batch: pa.RecordBatch) -> Encoded:
    """Return the tokens of the texts of a batch, by a child process where the batch is isolated.

    Args:
        tokenizer: the tokeniser.
        batch: has the column ``text``, without nulls.
    """
    texts = batch.column("text")
    if is_isolated(batch):
        return isolated_encode(tokenizer, texts)
    return load_encoder(tokenizer).encode(texts.to_pylist())


def isolated_encode(tokenizer: TokenizerUse, texts: pa.Array) -> Encoded:
    """Return what the encoder of ``tokenizer`` gives for n texts, texts that kill the process marked as failed.

    Raises:
        ChildStartError: if any text kills it.
        CallError: for an error of the tokeniser that is of no text.
    """

    def ask(chosen: pa.Array) -> Encoded:
        tokens, failures = _child.call(_encode, tokenizer, pa.record_batch({"text": chosen}))
        column = tokens.column("tokens")
        found = {row["row"]: Failure(row["reason"], row["detail"]) for row in failures.to_pylist()}
        # One list: the texts lie one behind the other in it, with their offsets beside it.
        return Encoded(column[0].values.to_numpy(), tokens.column("offsets")[0].values.to_numpy(), found)

    def encode_rows(rows: range) -> Encoded:
        return ask(texts.slice(rows.start, len(rows)))

    return joined_tokens(settled(len(texts), encode_rows, lambda: ask(pa.array(["word"])), tokenizer.path))


def read(
    source: Source, open_input: OpenInput, digest: Digest | None = None, *, isolated: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a source as ``stages.readers.read`` does, by a child process if ``isolated``.

    Then, or where a reader fails, the digest stays unknown.

    A reader that fails, or dies, cannot be told to go on behind the place. The batches up to there are followed by one
    row that failed, with the place, and the rest of the source is not read.
    """
    place, child = _Place(source), Child()
    batches = _isolated_read(child, source, open_input) if isolated else readers.read(source, open_input, digest)
    try:
        for batch in batches:
            place.pass_over(batch)
            yield batch
    except (*NOT_OF_A_DOCUMENT, ChildStartError):
        raise
    except ChildDiedError as error:
        yield place.failed(Failure(KILLED_PROCESS, str(error)))
    except CallError as error:
        yield place.failed(error.failure)
    except BaseException as error:
        yield place.failed(Failure.of(error))
    finally:
        child.close()


def _isolated_read(child: Child, source: Source, open_input: OpenInput) -> Iterator[pa.RecordBatch]:
    """Yield what a child reads; ChildDiedError is raised where it has died twice at the same place."""
    given, died_at = 0, -1
    while True:
        try:
            for number, batch in enumerate(child.call(_read, (source, open_input))):
                if number == given:
                    given += 1
                    yield batch
            return
        except ChildDiedError:
            # The first time somebody else may have ended it. A reader comes to the same end again.
            if died_at == given:
                raise
            died_at = given


class _Place:
    """How far a source was read."""

    def __init__(self, source: Source) -> None:
        self._source, self._record, self._offset = source, 0, 0

    def pass_over(self, batch: pa.RecordBatch) -> None:
        """Note a batch that was read."""
        self._record = split_doc_id(batch.column("doc_id")[-1].as_py())[1] + 1
        self._offset = batch.column("offset")[-1].as_py()

    def failed(self, failure: Failure) -> pa.RecordBatch:
        """Return the batch of one row that stands for all that was not read, at the offset of the last that was."""
        builder = BatchBuilder(self._source, self._record)
        builder.add(Row(self._offset).fail(failure.reason, f"not read from here on: {failure.detail}"))
        return cast(pa.RecordBatch, builder.flush())


def settled(
    rows: int, call: Callable[[range], T], call_harmless: Callable[[], object], name: str
) -> list[tuple[range, T | Failure]]:
    """Settle rows by calls of the child. A row on which it dies has failed, if it does not die on a harmless one."""

    def confirmed(of: range) -> T:
        if rows == 1:
            # An only row has died in no larger batch before: the first time somebody else may have ended the process.
            with contextlib.suppress(ChildDiedError):
                return call(of)
        return call(of)

    @functools.cache
    def require_use() -> None:
        try:
            call_harmless()
        except ChildDiedError as error:
            raise ChildStartError(f"{name} ends its process on any document: {error}") from error
        except CallError:
            return

    def failure_of(error: BaseException) -> Failure | None:
        if not isinstance(error, ChildDiedError):
            return None
        require_use()
        return Failure(KILLED_PROCESS, str(error))

    return failing.settle(range(rows), confirmed, failure_of)


def _judge(stage: Stage, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """In the child: yield the verdict on a batch, as columns, and its edits where it has any."""
    verdict = marking.judged(stage, cast(pa.RecordBatch, batch))
    yield _packed(verdict)
    if verdict.edits is not None:
        yield verdict.edits


def _packed(verdict: Verdict) -> pa.RecordBatch:
    columns = {"codes": pa.array(verdict.codes.astype(np.int8))}
    if verdict.value is not None:
        columns["value"] = pa.array(verdict.value.astype(np.float64))
    if verdict.detail is not None:
        columns["detail"] = verdict.detail
    return pa.record_batch(columns | {f"{_COLUMN}{name}": array for name, array in verdict.columns.items()})


def _unpacked(batch: pa.RecordBatch, edits: pa.RecordBatch | None = None) -> Verdict:
    had = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = {name.removeprefix(_COLUMN): array for name, array in had.items() if name.startswith(_COLUMN)}
    value = had["value"].to_numpy() if "value" in had else None
    return Verdict(had["codes"].to_numpy(), value, columns, had.get("detail"), edits)


def _encode(tokenizer: TokenizerUse, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """In the child: yield the tokens of texts, and then the failures."""
    encoded = load_encoder(tokenizer).encode(cast(pa.RecordBatch, batch).column("text").to_pylist())
    offsets = pa.array(encoded.offsets)
    yield pa.record_batch({"tokens": _one_list(pa.array(encoded.values)), "offsets": _one_list(offsets)})
    rows = [{"row": row, **vars(failure)} for row, failure in encoded.failures.items()]
    yield pa.RecordBatch.from_pylist(rows, _FAILURES)


def _one_list(values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)


def _read(argument: tuple[Source, OpenInput], _: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """In the child: yield the batches of a source."""
    yield from readers.read(*argument)
