"""Readers: from the path of a source to batches of documents. Every record of the container is exactly one row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, cast

import pyarrow as pa

from shards.errors import UserError
from stages.readers import jsonl, parquet, warc
from stages.readers.base import (
    FORMATS,
    READ,
    READ_FAILURES,
    READ_REASONS,
    BatchBuilder,
    OpenInput,
    Row,
    Source,
)
from stages.readers.content import to_row
from stages.readers.decompress import Stream
from stages.readers.detect import (
    HEAD_BYTES,
    Rewound,
    compression_of,
    container_of,
    describe,
    peek,
    read_head,
    unread,
)

__all__ = ["FORMATS", "READ", "READ_FAILURES", "READ_REASONS", "OpenInput", "Source", "read"]


def read(source: Source, open_input: OpenInput) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``source`` in order, as batches of exactly ``shards.schema.DOCUMENT``.

    A document has its text, or its payload and media type where the text is yet to be extracted; any other record is
    marked with ``dropped_by`` = ``READ`` and its reason. What comes out depends on the bytes of the source alone.

    Args:
        source: what to read, and as what.
        open_input: opens a path for reading bytes; Parquet needs an input that can seek.

    Raises:
        UserError: if the format of ``source`` is none of ``FORMATS``.
        OSError: if the source cannot be opened, or reading fails midway. That is no property of a record: the source
            was there when it was planned, and the split is to be tried again.
    """
    if source.format not in FORMATS:
        raise UserError(
            f"format {source.format!r} is unknown", place=source.path, remedy=f"One of {', '.join(FORMATS)}"
        )
    builder = BatchBuilder(source)
    with _opened(source.path, open_input) as raw:
        for index, row in _rows(source, raw):
            if index is not None:
                builder.record_index = index
            yield from builder.add(row)
    if builder.record_index == 0:
        yield from builder.add(Row(0).mark("empty_file", "the file holds no record"))
    yield from builder.flush()


def _opened(path: str, open_input: OpenInput) -> BinaryIO:
    try:
        return open_input(path)
    except OSError as error:
        why = f"a planned source cannot be opened: {error.strerror or error}"
        # With its number it becomes what it was, such as FileNotFoundError; not every file system gives one.
        raise (OSError(f"{why}: {path}") if error.errno is None else OSError(error.errno, why, path)) from error


def _rows(source: Source, raw: BinaryIO) -> Iterator[tuple[int | None, Row]]:
    """Yield (record index, or None for the next one; row) of every record."""
    head = read_head(raw)
    if not head:
        yield None, Row(0).mark("empty_file", "the file is empty")
        return
    what = unread(head)
    if what is not None and source.format == "auto":
        yield None, Row(0).mark("unsupported_format", f"the file is {what}")
        return
    compression = compression_of(head)
    if head.startswith(b"PAR1") or source.format == "parquet":
        raw.seek(0)
        yield from parquet.rows(raw, source)
        return
    form, begin = source.format, cast(BinaryIO, Rewound(head, raw))
    stream = Stream(begin, compression)
    if form == "auto":
        start = peek(stream) if compression != "none" else head[:HEAD_BYTES]
        found = container_of(start, source.path)
        if found is None or found == "parquet":
            damage = stream.damage
            mark = Row(0)
            if damage is not None and not start:
                yield None, mark.mark(damage.reason, damage.detail)
            else:
                yield None, mark.mark("unsupported_format", describe(start) if found is None else "compressed Parquet")
            return
        form = found
    if form == "warc":
        stream.probe = warc.PROBE
        for record in warc.records(stream, source.max_record_bytes):
            yield None, to_row(record, source)
    else:
        stream.probe = jsonl.PROBE
        for row in jsonl.rows(stream, source):
            yield None, row
