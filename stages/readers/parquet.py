"""Parquet: one row a document, its text in one string column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shards.schema import MAX_BATCH_BYTES
from stages.readers.base import FIRST_SECOND, LAST_SECOND, Row, Source, parse_date

MAX_ROWS: Final = 1_000
BUFFER_BYTES: Final = 1 << 20
MAX_FILE_ROWS: Final = 1 << 32
"""A doc_id has no room for more rows; a footer that claims more is not believed."""
MAX_LOST_ROWS: Final = 64 << 20
"""Lost rows of a file that are failures one by one. A footer of a few bytes can claim any number."""


def rows(raw: BinaryIO, source: Source) -> Iterator[tuple[int, Row]]:
    """Yield (row number, row) of every row; ``Row.offset`` is the row number too.

    Rows of a row group that cannot be decoded are one failure each, and the next group goes on at its own number.

    Raises:
        OSError: if ``raw`` fails, as opposed to what it holds.
        MemoryError: if there is too little memory, which is no property of the file.
    """
    parquet = _Parquet(_Input(raw), source)
    try:
        file = pq.ParquetFile(parquet.input, buffer_size=BUFFER_BYTES, pre_buffer=False)
        schema = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        parquet.raise_passing(error)
        yield 0, Row(0).mark("unreadable", f"not a Parquet file that can be read: {_first_line(error)}")
        return
    groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    if any(count < 0 for count in groups) or sum(groups) > MAX_FILE_ROWS:
        yield 0, Row(0).mark("unreadable", f"the footer claims row groups of {groups[:8]} rows")
        return
    if source.text_key not in schema.names or not _is_text(schema.field(source.text_key).type):
        found = ", ".join(f"{column.name}: {column.type}" for column in schema)[:300]
        detail = f"no string column {source.text_key!r} among {found}"
        yield from parquet.lost(0, sum(groups), "missing_text", detail)
        return
    parquet.columns = [name for name in (source.text_key, source.url_key, source.date_key) if name in schema.names]
    first = 0
    for group, count in enumerate(groups):
        yield from parquet.group(file, group, first, first + count)
        first += count


class _Input:
    """An input that remembers its own error: Arrow raises ``OSError`` for damaged content as well."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.error: Exception | None = None
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        return cast(bytes, self._do(self._raw.read, count))

    def seek(self, offset: int, whence: int = 0) -> int:
        return cast(int, self._do(self._raw.seek, offset, whence))

    def tell(self) -> int:
        return cast(int, self._do(self._raw.tell))

    def _do(self, method: Any, *arguments: int) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            self.error = error
            raise


@dataclass
class _Parquet:
    input: _Input
    source: Source
    columns: list[str] = field(default_factory=list)
    lost_rows: int = 0

    def raise_passing(self, error: Exception) -> None:
        """Raise what another attempt may not meet: an error of the input, and want of memory."""
        if self.input.error is not None:
            raise self.input.error
        if isinstance(error, MemoryError):
            raise error

    def group(self, file: pq.ParquetFile, group: int, first: int, end: int) -> Iterator[tuple[int, Row]]:
        """Yield the rows of a row group, numbered from ``first``: exactly the ``end - first`` the footer claims."""
        average = file.metadata.row_group(group).total_byte_size // max(1, end - first) + 1
        batch_rows = max(1, min(MAX_ROWS, MAX_BATCH_BYTES // average))
        number, why = first, "the group holds fewer"
        try:
            for batch in file.iter_batches(batch_rows, row_groups=[group], columns=self.columns, use_threads=False):
                for row in _batch_rows(batch.slice(0, end - number), number, self.source):
                    yield row.offset, row
                number = min(end, number + batch.num_rows)
        except (pa.ArrowException, OSError) as error:
            self.raise_passing(error)
            why = _first_line(error)
        if number < end:
            detail = f"rows {number} to {end - 1} of row group {group} cannot be decoded: {why}"
            yield from self.lost(number, end, "unreadable", detail)

    def lost(self, first: int, end: int, reason: str, detail: str) -> Iterator[tuple[int, Row]]:
        """Yield a failure for every row from ``first`` to ``end``; the first says why."""
        stop = min(end, first + max(1, MAX_LOST_ROWS - self.lost_rows))
        self.lost_rows += stop - first
        for number in range(first, stop):
            yield number, Row(number).mark(reason, detail if number == first else f"as row {first}")
        if stop < end:
            yield stop, Row(stop).mark(reason, f"as row {first}, and the {end - stop - 1} rows that follow")


def _batch_rows(batch: pa.RecordBatch, number: int, source: Source) -> Iterator[Row]:
    texts = batch.column(source.text_key).cast(pa.large_string()).view(pa.large_binary())
    urls = _strings(batch, source.url_key)
    dates = _seconds(batch, source.date_key)
    for index, (text, url, when) in enumerate(zip(texts, urls, dates, strict=True)):
        yield _judge(Row(number + index, url=url or None, date=when), text.as_py(), source)


def _judge(row: Row, text: bytes | None, source: Source) -> Row:
    if text is None:
        return row.mark("missing_text", f"the column {source.text_key!r} holds null")
    if len(text) > source.max_record_bytes:
        return row.mark("too_large", f"a text of {len(text)} bytes", len(text))
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        return row.mark("bad_encoding", f"byte {error.start} of the text is not UTF-8")
    if not decoded or decoded.isspace():
        return row.mark("empty")
    row.text = text
    return row


def _strings(batch: pa.RecordBatch, name: str) -> list[str | None]:
    """Return a column as strings, nulls where it is missing or holds something else."""
    if name not in batch.schema.names or not _is_text(batch.schema.field(name).type):
        return [None] * batch.num_rows
    binary = batch.column(name).cast(pa.large_string()).view(pa.large_binary())
    return [None if value is None else value.decode("utf-8", "replace") for value in binary.to_pylist()]


def _seconds(batch: pa.RecordBatch, name: str) -> list[int | None]:
    """Return a column of dates, times or strings as seconds since 1970, nulls where that is no date."""
    kind = batch.schema.field(name).type if name in batch.schema.names else pa.null()
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return [None if value is None else parse_date(value) for value in _strings(batch, name)]
    column = batch.column(name)
    if pa.types.is_date32(kind):
        seconds = pc.multiply(column.view(pa.int32()).cast(pa.int64()), 86_400)
    else:
        unit = "ms" if pa.types.is_date(kind) else kind.unit
        seconds = _floor_divided(column.view(pa.int64()), {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit])
    inside = pc.and_(pc.greater_equal(seconds, FIRST_SECOND), pc.less_equal(seconds, LAST_SECOND))
    return cast(list[int | None], pc.if_else(inside, seconds, pa.scalar(None, pa.int64())).to_pylist())


def _floor_divided(column: pa.Array, divisor: int) -> pa.Array:
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(values, divisor), mask=column.is_null().to_numpy(zero_copy_only=False))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
