"""What every reader shares: the source it reads, the ways a record can end, and the building of batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import BinaryIO, Final

import pyarrow as pa

from shards.schema import DOCUMENT, MAX_BATCH_BYTES, MAX_BATCH_DOCUMENTS, UNKNOWN_LANGUAGE, make_doc_id
from stages.failing import FAILURES
from stages.url.host import host_of

READ: Final = "read"
"""``dropped_by`` of every record that a reader drops or fails."""

READ_REASONS: Final = (
    "not_a_document",  # a record that holds no document: warcinfo, request, metadata, revisit, an unknown WARC-Type
    "segmented",  # one segment of a record that WARC segmentation split; segments are not joined
    "http_status",  # the server answered with a status that is not 2xx; value is the status
    "unsupported_media",  # a media type, or a coding of it, from which no text is taken
    "unsupported_format",  # a container, or a version of it, that is not read
    "empty",  # no body, or a text of white space only
    "too_large",  # longer than max_record_bytes, also after decoding; value is the bytes known of
)
READ_FAILURES: Final = (
    "empty_file",  # a file without a byte, or without a record
    "unreadable",  # bytes that are not what their container promises: a Parquet file, or rows of a damaged row group
    "truncated",  # the input ends inside the record
    "decompression",  # damaged compressed data, of the container or of an HTTP body
    "bad_record",  # a WARC record whose header or length is wrong, or bytes that belong to no record
    "bad_http",  # an HTTP response whose status line or chunks cannot be parsed
    "bad_encoding",  # bytes that are not UTF-8 where they must be, or a lone surrogate
    "bad_json",  # a line that is not a JSON object
    "missing_text",  # a row without the text field, or with something else than a string in it
    "crashed",  # code that reads one record raised what nobody foresaw
)

_DECLARED: Final = frozenset(READ_REASONS + READ_FAILURES + FAILURES)

FORMATS: Final = ("auto", "warc", "jsonl", "parquet")
MAX_URL_CHARS: Final = 8192
"""Longer URLs are cut: they are data URIs and traps, and must not fill a verdict table."""

FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799
"""The years 1 to 9999 in seconds since 1970: Python has no other dates, so others could be written, never looked at."""

OpenInput = Callable[[str], BinaryIO]


@dataclass(frozen=True)
class Span:
    """The bytes [begin, end) of a file."""

    begin: int
    end: int


@dataclass(frozen=True)
class Source:
    """One input file, or a span of one: plain values, so that it travels to any worker.

    Attributes:
        index: row of the corpus's source table, the upper half of every doc_id.
        path: what ``open_input`` is given.
        format: one of ``FORMATS``; WET and WAT files are ``warc``. ``auto`` looks at the first bytes, then at the name.
        domain: the mixture's domain of its documents.
        licence: licence of its documents, None if unknown.
        text_key: field of the text, in JSONL and Parquet.
        url_key: field of the URL, in JSONL and Parquet; it may be missing.
        date_key: field of the date, in JSONL and Parquet; it may be missing.
        max_record_bytes: longest document, in bytes as stored in the container and again after HTTP decoding. What is
            longer is a ``too_large`` drop, and never held in memory.
        span: the part of the file that is read; None for all of it. ``stages.readers.spans`` says what belongs to it.
    """

    index: int
    path: str
    format: str = "auto"
    domain: str = "web"
    licence: str | None = None
    text_key: str = "text"
    url_key: str = "url"
    date_key: str = "date"
    max_record_bytes: int = 16 << 20
    span: Span | None = None


@dataclass
class Row:
    """One record on its way into a batch. Text is UTF-8 and already checked.

    A row with neither text nor payload is marked: ``reason`` is one of ``READ_REASONS`` or ``READ_FAILURES``.
    """

    offset: int
    text: bytes | None = None
    payload: bytes | None = None
    media_type: str | None = None
    url: str | None = None
    date: int | None = None
    reason: str | None = None
    value: float | None = None
    detail: str | None = None

    def mark(self, reason: str, detail: str | None = None, value: float | None = None) -> Row:
        """Make the record a drop or a failure, and let go of its content."""
        assert reason in _DECLARED, reason
        self.text = self.payload = self.media_type = None
        self.reason, self.detail, self.value = reason, detail, value
        return self


@dataclass
class BatchBuilder:
    """Collects rows of one source into batches of ``DOCUMENT``, numbering them in the order in which they come."""

    source: Source
    record_index: int = 0
    _rows: list[Row] = field(default_factory=list)
    _indices: list[int] = field(default_factory=list)
    _bytes: int = 0

    def add(self, row: Row) -> pa.RecordBatch | None:
        """Take the next record; return the batch before it if that is full now."""
        size = 256 + len(row.text or b"") + len(row.payload or b"")
        full = None
        if self._rows and (len(self._rows) >= MAX_BATCH_DOCUMENTS or self._bytes + size > MAX_BATCH_BYTES):
            full = self.flush()
        self._rows.append(row)
        self._indices.append(self.record_index)
        self._bytes += size
        self.record_index += 1
        return full

    def flush(self) -> pa.RecordBatch | None:
        """Return what is collected, if anything is."""
        if not self._rows:
            return None
        batch = _batch(self.source, self._rows, self._indices)
        self._rows, self._indices, self._bytes = [], [], 0
        return batch


def _batch(source: Source, rows: list[Row], indices: list[int]) -> pa.RecordBatch:
    count = len(rows)
    urls = [None if row.url is None else row.url[:MAX_URL_CHARS] for row in rows]
    columns = {
        "doc_id": pa.array([make_doc_id(source.index, index) for index in indices], pa.int64()),
        "text": pa.array([row.text for row in rows], pa.binary()).view(pa.string()),
        "payload": pa.array([row.payload for row in rows], pa.binary()),
        "media_type": pa.array([row.media_type for row in rows], pa.string()),
        "url": pa.array(urls, pa.string()),
        "host": pa.array([host_of(url) or None if url else None for url in urls], pa.string()),
        "source_index": pa.repeat(pa.scalar(source.index, pa.int32()), count),
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "date": pa.array([row.date for row in rows], pa.int64()).cast(pa.timestamp("s", tz="UTC")),
        "language": pa.repeat(pa.scalar(UNKNOWN_LANGUAGE), count),
        "domain": pa.repeat(pa.scalar(source.domain), count),
        "licence": pa.repeat(pa.scalar(source.licence, pa.string()), count),
        "dropped_by": pa.array([READ if row.reason else None for row in rows], pa.string()),
        "reason": pa.array([row.reason for row in rows], pa.string()),
        "value": pa.array([row.value for row in rows], pa.float64()),
        "failed": pa.array([row.reason in READ_FAILURES for row in rows], pa.bool_()),
        "detail": pa.array([row.detail for row in rows], pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in DOCUMENT.names], schema=DOCUMENT)


_DATE: Final = re.compile(
    r"(\d{4})(?:-?(\d\d)(?:-?(\d\d)(?:[T ]?(\d\d):?(\d\d)(?::?(\d\d)(?:[.,]\d+)?)?)?)?)?"
    r"\s*(?:Z|UTC|([+-]\d\d):?(\d\d))?",
    re.ASCII | re.IGNORECASE,
)


_EPOCH: Final = date(1970, 1, 1).toordinal()


def parse_date(value: str) -> int | None:
    """Return seconds since 1970 UTC of an ISO 8601 date, or of the 14 digits of an ARC date; None for anything else.

    WARC 1.1 allows reduced precision (``2017-03``): the start of the period is meant then. No offset means UTC.
    """
    match = _DATE.fullmatch(value.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, ahead, ahead_minutes = match.groups()
    hours, minutes = int(hour or 0), int(minute or 0)
    if hours > 23 or minutes > 59:
        return None
    try:
        days = date(int(year), int(month or 1), int(day or 1)).toordinal() - _EPOCH
    except ValueError:
        return None
    seconds = days * 86_400 + hours * 3600 + minutes * 60 + min(int(second or 0), 59)
    if ahead:
        offset = abs(int(ahead)) * 3600 + int(ahead_minutes) * 60
        seconds += offset if ahead[0] == "-" else -offset
    return seconds if FIRST_SECOND <= seconds <= LAST_SECOND else None


def utf8(text: str) -> str:
    """Return ``text`` with every lone surrogate replaced, so that Arrow takes it."""
    return text.encode("utf-8", "replace").decode("utf-8")
