"""What every reader shares: the source it reads, the ways a record can end, and the building of batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from shards.schema import DOCUMENT, MAX_BATCH_BYTES, MAX_BATCH_DOCUMENTS, UNKNOWN_LANGUAGE, make_doc_id
from stages.readers.reading import COLUMNS, READ, SCORES, Choice, Rules, rules_of
from stages.url.host import host_of

RECORD: Final = pa.schema([*DOCUMENT, *COLUMNS])
"""The columns of a batch as a reader gives it: those of a document, and what was measured in reading it."""

FORMATS: Final = ("auto", "warc", "jsonl", "parquet")
MAX_URL_CHARS: Final = 8192
"""Longer URLs are cut: they are data URIs and traps, and must not fill a verdict table."""

FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799
"""The years 1 to 9999 in seconds since 1970: Python has no other dates, so others could be written, never looked at."""

REPLACEMENT: Final = "\ufffd"
"""What a decoder puts in place of bytes that are no text, here or where the text came from."""

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
        min_status: least HTTP status of a document; others are ``http_status`` drops.
        max_status: greatest HTTP status of a document.
        max_replaced: greatest share of U+FFFD among the characters of a document.
        truncated: what becomes of a record that its crawler cut off: ``keep``, ``drop`` or ``fail``.
        wrong_digest: what becomes of a record that is not what its digests say, likewise.
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
    min_status: int = 200
    max_status: int = 299
    max_replaced: float = 0.05
    truncated: Choice = "keep"
    wrong_digest: Choice = "keep"
    span: Span | None = None

    @property
    def rules(self) -> Rules:
        """What drops a record."""
        numbers = (self.min_status, self.max_status, self.max_record_bytes, self.max_replaced)
        return rules_of(*numbers, self.truncated, self.wrong_digest)


@dataclass
class Row:
    """One record on its way into a batch. Text is UTF-8 and already checked.

    A record that is dropped or failed has neither text nor payload.

    Attributes:
        scores: what was measured, by name of the score of ``stages.readers.reading.Reading``.
        failure: why it could not be read, None where it could.
        detail: what there is to say of its drop or failure.
    """

    offset: int
    text: bytes | None = None
    payload: bytes | None = None
    media_type: str | None = None
    url: str | None = None
    date: int | None = None
    scores: dict[str, float | str] = field(default_factory=dict)
    failure: str | None = None
    detail: str | None = None

    def measure(self, source: Source, score: str, value: float | str, detail: str | None = None) -> bool:
        """Note a score; return whether a check drops the record for it, so that there is no need to look further.

        ``detail`` is what to say of the drop.
        """
        self.scores[score] = value
        if not source.rules.drops(score, value):
            return False
        self.text = self.payload = self.media_type = None
        self.detail = detail
        return True

    def fail(self, reason: str, detail: str) -> Row:
        """Make the record one that could not be read, and let go of its content."""
        self.text = self.payload = self.media_type = None
        self.failure, self.detail = reason, detail
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
    scores, marks = source.rules.marks(
        {name: [row.scores.get(name) for row in rows] for name in SCORES}, [row.failure for row in rows]
    )
    is_marked = pc.is_valid(marks["reason"])
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
        "dropped_by": pc.if_else(is_marked, pa.scalar(READ), pa.scalar(None, pa.string())),
        **marks,
        "detail": pc.coalesce(pa.array([row.detail for row in rows], pa.string()), marks["detail"]),
        **scores,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORD.names], schema=RECORD)


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


def measure_replaced(row: Row, source: Source, text: str) -> bool:
    """Measure the share of replacement characters in a text; return whether it is dropped for it."""
    replaced = text.count(REPLACEMENT)
    if not replaced:
        row.scores["replaced"] = 0.0
        return False
    said = f"{replaced} of {len(text)} characters are U+FFFD"
    return row.measure(source, "replaced", round(replaced / len(text), 4), said)


def utf8(text: str) -> str:
    """Return ``text`` with every lone surrogate replaced, so that Arrow takes it."""
    return text.encode("utf-8", "replace").decode("utf-8")
