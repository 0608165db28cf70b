"""Parquet: one row a document, its text in one string column."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from shards.schema import MAX_BATCH_BYTES
from stages.readers.base import Row, Source, parse_date

MAX_ROWS: Final = 1_000
BUFFER_BYTES: Final = 1 << 20


def rows(raw: BinaryIO, source: Source) -> Iterator[tuple[int, Row]]:
    """Give (row number, row) of every row; ``Row.offset`` is the row number too.

    A row group that cannot be decoded is one failure at its first row, and the next group goes on at its own number.
    """
    try:
        file = pq.ParquetFile(raw, buffer_size=BUFFER_BYTES, pre_buffer=False)
        schema = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        yield 0, Row(0).mark("unreadable", f"not a Parquet file that can be read: {_first_line(error)}")
        return
    if source.text_key not in schema.names or not _is_text(schema.field(source.text_key).type):
        found = ", ".join(f"{column.name}: {column.type}" for column in schema)[:300]
        detail = f"no string column {source.text_key!r} among {found}"
        yield 0, Row(0).mark("missing_text", detail)
        return
    columns = [name for name in (source.text_key, source.url_key, source.date_key) if name in schema.names]
    first = 0
    for group in range(file.num_row_groups):
        yield from _group(file, group, first, columns, source)
        first += file.metadata.row_group(group).num_rows


def _group(
    file: pq.ParquetFile, group: int, first: int, columns: list[str], source: Source
) -> Iterator[tuple[int, Row]]:
    meta = file.metadata.row_group(group)
    average = meta.total_byte_size // max(1, meta.num_rows) + 1
    batch_rows = max(1, min(MAX_ROWS, MAX_BATCH_BYTES // average))
    number = first
    try:
        for batch in file.iter_batches(batch_rows, row_groups=[group], columns=columns, use_threads=False):
            for row in _batch_rows(batch, number, source):
                yield row.offset, row
            number += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        last = first + meta.num_rows - 1
        detail = f"rows {number} to {last} of row group {group} cannot be decoded: {_first_line(error)}"
        yield number, Row(number).mark("unreadable", detail)


def _batch_rows(batch: pa.RecordBatch, number: int, source: Source) -> Iterator[Row]:
    texts = batch.column(source.text_key).cast(pa.large_string()).view(pa.large_binary())
    urls = _values(batch, source.url_key)
    dates = _values(batch, source.date_key)
    for index, (text, url, when) in enumerate(zip(texts, urls, dates, strict=True)):
        row = Row(number + index, url=url if isinstance(url, str) and url else None, date=_seconds(when))
        yield _judge(row, text.as_py(), source)


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


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Give a column as Python values, nulls where it is missing or of no use."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if _is_text(column.type):
        binary = column.cast(pa.large_string()).view(pa.large_binary())
        return [None if value is None else value.decode("utf-8", "replace") for value in binary.to_pylist()]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s", tz=column.type.tz), safe=False)
    elif not pa.types.is_date(column.type):
        return [None] * batch.num_rows
    return list(column.to_pylist())


def _seconds(when: Any) -> int | None:
    if isinstance(when, str):
        return parse_date(when)
    if isinstance(when, datetime):
        return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
    if isinstance(when, date):
        return int(datetime(when.year, when.month, when.day, tzinfo=UTC).timestamp())
    return None


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
