"""Readers: from the path of a source to batches of documents. Every record of the container is exactly one row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import BinaryIO

import pyarrow as pa

from shards.errors import UserError
from stages.readers import jsonl, parquet, warc
from stages.readers.base import (
    FORMATS,
    RECORD,
    BatchBuilder,
    OpenInput,
    Row,
    Source,
    Span,
)
from stages.readers.content import to_row
from stages.readers.decompress import Stream
from stages.readers.detect import (
    HEAD_BYTES,
    LAYOUT_BYTES,
    Rewound,
    compression_of,
    container_of,
    describe,
    layout_of,
    peek,
    read_head,
    unread,
)
from stages.readers.digest import Digest, HashedInput
from stages.readers.members import Seekable
from stages.readers.reading import READ, READ_FAILURES, READ_REASONS, UNREAD, Reading
from stages.readers.spans import cut, line_start, member_start

__all__ = [
    "FORMATS",
    "READ",
    "READ_FAILURES",
    "READ_REASONS",
    "RECORD",
    "Digest",
    "OpenInput",
    "Reading",
    "Source",
    "Span",
    "cut",
    "read",
]

Numbered = tuple[int | None, Row]
"""(record index, or None for the next one; row)."""


def read(source: Source, open_input: OpenInput, digest: Digest | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``source`` in order, as batches in the schema ``RECORD``.

    A document has its text, or its payload and media type where the text is yet to be extracted; any other record is
    marked with ``dropped_by`` = ``READ`` and its reason, of those that ``Reading`` declares. What comes out depends on
    the bytes of the source alone. A span without a record gives no batch, unless it is the whole file.

    Args:
        source: what to read, and as what.
        open_input: opens a path for reading bytes; Parquet and spans need an input that can seek.
        digest: gets the digest of the source's bytes once the last batch has been taken. To that end all of them are
            read, also where the reader could stop early.

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
        hashed = HashedInput(raw, source.span) if digest is not None else None
        rows, is_whole = _rows(source, hashed or raw)
        for index, row in rows:
            if index is not None:
                builder.record_index = index
            if (full := builder.add(row)) is not None:
                yield full
        if digest is not None and hashed is not None:
            digest.hex = hashed.finish()
    if builder.record_index == 0 and is_whole:
        builder.add(Row(0).fail("empty_file", "the file holds no record"))
    if (last := builder.flush()) is not None:
        yield last


def _opened(path: str, open_input: OpenInput) -> BinaryIO:
    try:
        return open_input(path)
    except OSError as error:
        why = f"a planned source cannot be opened: {error.strerror or error}"
        # With its number it becomes what it was, such as FileNotFoundError; not every file system gives one.
        raise (OSError(f"{why}: {path}") if error.errno is None else OSError(error.errno, why, path)) from error


def _rows(source: Source, raw: Seekable) -> tuple[Iterator[Numbered], bool]:
    """Return the rows of the source, and whether they are those of the whole file."""
    span = source.span
    if span is None:
        return _all_rows(source, raw, read_head(raw)), True
    head = read_head(raw, LAYOUT_BYTES)
    layout = layout_of(head, source.path, source.format)
    if layout is None:
        # Nothing of the file can be found without reading all that comes before.
        begins = span.begin == 0 and (span.end > 0 or not head)
        return (_all_rows(source, raw, head), True) if begins else (iter(()), False)
    is_whole = span.begin == 0 and raw.seek(0, 2) <= span.end
    if layout == "row groups":
        return parquet.rows(raw, source), is_whole
    rows = _span_of_lines(source, raw, span) if layout == "lines" else _span_of_members(source, raw, span)
    return zip(repeat(None), rows, strict=False), is_whole


def _span_of_lines(source: Source, raw: Seekable, span: Span) -> Iterator[Row]:
    if (found := line_start(raw, span)) is not None:
        at, ahead = found
        yield from jsonl.rows(Stream(Rewound(ahead, raw), "none", origin=at), source, span.end)


def _span_of_members(source: Source, raw: Seekable, span: Span) -> Iterator[Row]:
    if (found := member_start(raw, span)) is not None:
        at, ahead = found
        for record in warc.records(
            Stream(Rewound(ahead, raw), "gzip", warc.PROBE, at, span.end), source.max_record_bytes
        ):
            yield to_row(record, source)


def _all_rows(source: Source, raw: Seekable, head: bytes) -> Iterator[Numbered]:
    start = head[:HEAD_BYTES]
    if not head:
        yield None, Row(0).fail("empty_file", "the file is empty")
        return
    what = unread(start)
    if what is not None and source.format == "auto":
        yield None, _unread(source, f"the file is {what}")
        return
    if head.startswith(b"PAR1") or source.format == "parquet":
        yield from parquet.rows(raw, source)
        return
    compression = compression_of(head)
    form, stream = source.format, Stream(Rewound(head, raw), compression)
    if form == "auto":
        if compression != "none":
            start = peek(stream)
        found = container_of(start, source.path)
        if found is None or found == "parquet":
            damage = stream.damage
            if damage is not None and not start:
                yield None, Row(0).fail(damage.reason, damage.detail)
            else:
                yield None, _unread(source, describe(start) if found is None else "compressed Parquet")
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


def _unread(source: Source, what: str) -> Row:
    row = Row(0)
    row.measure(source, "kind", UNREAD, what)
    return row
