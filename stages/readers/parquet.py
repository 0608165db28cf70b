"""Parquet: one row a document, its text in one string column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shards.schema import MAX_BATCH_BYTES
from stages.readers.base import FIRST_SECOND, LAST_SECOND, Row, Source, parse_date
from stages.readers.guard import Failed, attempt, explain, guarded
from stages.readers.members import Seekable

MAX_ROWS: Final = 1_000
BUFFER_BYTES: Final = 1 << 20
MAX_COPIED_BYTES: Final = 4 * MAX_BATCH_BYTES
MAX_FILE_ROWS: Final = 1 << 32
"""A doc_id has no room for more rows; a footer that claims more is not believed."""
MAX_LOST_ROWS: Final = 64 << 20
"""Lost rows of a file that are failures one by one. A footer of a few bytes can claim any number."""


@dataclass(frozen=True)
class _Group:
    """A row group: rows [first, end) of the file, its content from byte ``start`` on."""

    number: int
    first: int
    end: int
    start: int


def rows(raw: Seekable, source: Source) -> Iterator[tuple[int, Row]]:
    """Yield (record index, row) of every row; ``Row.offset`` is the number of the row in the file.

    Rows of a row group that cannot be decoded are one failure each, and the next group goes on at its own number. In a
    span the record index counts from its first row. What fails the file as a whole is a row of its first span.

    Raises:
        OSError: if ``raw`` fails, as opposed to what it holds.
        MemoryError: if there is too little memory for a row group, which is no property of the file.
    """
    parquet, span = _Parquet(_Input(raw), source), source.span
    opened = attempt(parquet.open)
    if isinstance(opened, Failed):
        parquet.raise_passing(opened.error)
        opened = f"not a Parquet file that can be read: {_first_line(opened.error)}"
    if isinstance(opened, str):
        if span is None or span.begin == 0:
            yield 0, Row(0).fail("unreadable", opened)
        return
    groups = [group for group in opened if span is None or span.begin <= group.start < span.end]
    first, end = (groups[0].first, groups[-1].end) if groups else (0, 0)
    if parquet.why_no_text:
        found = parquet.lost(first, end, "missing_text", parquet.why_no_text, cause=0)
    else:
        found = chain.from_iterable(parquet.group(group) for group in groups)
    for row in found:
        yield row.offset - first, row


def group_starts(raw: Seekable, source_path: str) -> list[int]:
    """Return the offset of the first byte of every row group, ascending; none if the file cannot be read.

    Raises:
        OSError: if ``raw`` fails, as opposed to what it holds.
    """
    parquet = _Parquet(_Input(raw), Source(0, source_path))
    groups = attempt(parquet.open)
    if isinstance(groups, Failed):
        parquet.raise_passing(groups.error)
        return []
    return [] if isinstance(groups, str) else [group.start for group in groups]


class _Input:
    """An input that remembers its own error: Arrow raises ``OSError`` for damaged content as well."""

    def __init__(self, raw: Seekable) -> None:
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
    why_no_text: str = ""
    lost_rows: int = 0

    def open(self) -> list[_Group] | str:
        """Return the row groups, or why the file is not believed."""
        size = self.input.seek(0, 2)
        self.file = pq.ParquetFile(self.input, buffer_size=BUFFER_BYTES, pre_buffer=False)
        schema, metadata = self.file.schema_arrow, self.file.metadata
        counts = [metadata.row_group(number).num_rows for number in range(self.file.num_row_groups)]
        if any(count < 0 for count in counts) or sum(counts) > MAX_FILE_ROWS:
            return f"the footer claims row groups of {counts[:8]} rows"
        if self.source.text_key not in schema.names or not _is_text(schema.field(self.source.text_key).type):
            found = ", ".join(f"{column.name}: {column.type}" for column in schema)[:300]
            self.why_no_text = f"no string column {self.source.text_key!r} among {found}"
        wanted = (self.source.text_key, self.source.url_key, self.source.date_key)
        self.columns = [name for name in wanted if name in schema.names]
        groups, first, start = [], 0, 0
        for number, count in enumerate(counts):
            # Never back, and never out of the file, whatever the footer claims: every group is in exactly one span.
            start = min(max(start, _start_of(metadata.row_group(number))), size - 1)
            groups.append(_Group(number, first, first + count, start))
            first += count
        return groups

    def raise_passing(self, error: BaseException) -> None:
        """Raise what another attempt may not meet: an error of the input, and want of memory."""
        if self.input.error is not None:
            raise self.input.error
        if isinstance(error, MemoryError):
            raise error

    def group(self, group: _Group) -> Iterator[Row]:
        """Yield the rows of a row group: exactly as many as the footer claims."""
        average = self.file.metadata.row_group(group.number).total_byte_size // max(1, group.end - group.first) + 1
        batches = self._batches(group.number, max(1, min(MAX_ROWS, MAX_BATCH_BYTES // average)))
        number, why = group.first, "the group holds fewer"
        while number < group.end:
            batch = attempt(next, batches, None)
            if isinstance(batch, Failed):
                self.raise_passing(batch.error)
                why = _first_line(batch.error)
                break
            if batch is None:
                break
            yield from _batch_rows(batch.slice(0, group.end - number), number, self.source)
            number = min(group.end, number + batch.num_rows)
        if number < group.end:
            detail = f"rows {number} to {group.end - 1} of row group {group.number} cannot be decoded: {why}"
            yield from self.lost(number, group.end, "unreadable", detail, cause=number)

    def _batches(self, number: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.file.iter_batches(batch_rows, row_groups=[number], columns=self.columns, use_threads=False)

    def lost(self, first: int, end: int, reason: str, detail: str, cause: int) -> Iterator[Row]:
        """Yield a failure for every row from ``first`` to ``end``; the row ``cause`` says why."""
        stop = min(end, first + max(1, MAX_LOST_ROWS - self.lost_rows))
        self.lost_rows += stop - first
        for number in range(first, stop):
            yield Row(number).fail(reason, detail if number == cause else f"as row {cause}")
        if stop < end:
            yield Row(stop).fail(reason, f"as row {cause}, and the {end - stop - 1} rows that follow")


def _start_of(group: Any) -> int:
    """Return the offset of the first page of a row group's first column chunk."""
    if not group.num_columns:
        return 0
    column = group.column(0)
    data, dictionary = column.data_page_offset, column.dictionary_page_offset
    return int(data if dictionary is None else min(data, dictionary))


def _batch_rows(batch: pa.RecordBatch, number: int, source: Source) -> Iterator[Row]:
    """Yield the rows of a batch; one by one if its columns cannot be converted, as a single row may be to blame."""
    columns = attempt(_columns, batch, source)
    if isinstance(columns, Failed) and batch.num_rows == 1:
        yield Row(number).fail("unreadable", f"row {number} cannot be converted: {explain(columns.error)}")
    elif isinstance(columns, Failed) or columns is None:
        for index in range(batch.num_rows):
            yield from _batch_rows(batch.slice(index, 1), number + index, source)
    else:
        for index, (text, url, when) in enumerate(zip(*columns, strict=True)):
            yield guarded(_judge, Row(number + index, url=url or None, date=when), text, source)


_Columns = tuple[list[bytes | None], list[str | None], list[int | None]]


def _columns(batch: pa.RecordBatch, source: Source) -> _Columns | None:
    """Return (text, URL, date) columns of equal length; None if there are too many bytes of text to hold them twice."""
    texts = batch.column(source.text_key).cast(pa.large_string()).view(pa.large_binary())
    if len(texts) > 1 and texts.nbytes > MAX_COPIED_BYTES:
        return None
    return texts.to_pylist(), _strings(batch, source.url_key), _seconds(batch, source.date_key)


def _judge(row: Row, text: bytes | None, source: Source) -> Row:
    if text is None:
        return row.fail("missing_text", f"the column {source.text_key!r} holds null")
    if len(text) > source.max_record_bytes:
        row.measure(source, "bytes", len(text), f"a text of {len(text)} bytes")
        return row
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        return row.fail("bad_encoding", f"byte {error.start} of the text is not UTF-8")
    if not row.measure(source, "bytes", 0 if decoded.isspace() else len(text)):
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


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
