"""From a WARC record to a row: a document, a drop with its reason, or a failure."""

from __future__ import annotations

from typing import Final

from stages.html.charset import charset_of, decode
from stages.readers.base import Row, Source, parse_date
from stages.readers.guard import guarded
from stages.readers.http import BodyError, Response, decode_body, parse_response
from stages.readers.reading import HTML, SEGMENT, UNKNOWN, UNREAD
from stages.readers.warc import TYPES, VERSIONS, Record

MAX_MEDIA_CHARS: Final = 100

_BINARY: Final = {
    b"%PDF-": "application/pdf",
    b"\x89PNG": "image/png",
    b"GIF8": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b\x08": "application/gzip",
    b"RIFF": "application/octet-stream",
    b"wOFF": "font/woff",
    b"OTTO": "font/otf",
}
"""What servers send under a Content-Type of text, by its first bytes."""


def to_row(record: Record, source: Source) -> Row:
    """Measure one record, by its header first, then its status, its media type and its body, until a check drops it."""
    return guarded(_measured, Row(record.offset), record, source)


def _measured(row: Row, record: Record, source: Source) -> Row:
    uri = record.fields.get("warc-target-uri", "").strip()
    if uri.startswith("<") and uri.endswith(">"):
        uri = uri[1:-1]
    row.url, row.date = uri or None, parse_date(record.fields.get("warc-date", ""))
    if record.failure:
        return row.fail(*record.failure)
    if not record.type:
        return row.fail("bad_record", "no WARC-Type")
    if row.measure(source, "kind", *_kind(record)):
        return row
    if not record.block:
        row.measure(source, "bytes", 0)
        return row
    return _document(row, record, source)


def _kind(record: Record) -> tuple[str, str]:
    """Return the score ``kind`` of a record, and what to say of it."""
    if record.version not in VERSIONS:
        return UNREAD, f"version {record.version[:40]!r} is not one of {', '.join(VERSIONS)}"
    if record.type == SEGMENT or "warc-segment-number" in record.fields:
        return SEGMENT, f"segment {record.fields.get('warc-segment-number', '?')} of a {record.type}"
    return record.type if record.type in TYPES else UNKNOWN, f"WARC-Type {record.type}"


def _document(row: Row, record: Record, source: Source) -> Row:
    body, content_type = record.block, record.fields.get("content-type", "")
    response = None
    if record.type == "response" or _media(content_type) == "application/http":
        response = parse_response(record.block)
        if response is None and _media(content_type) in ("application/http", ""):
            return row.fail("bad_http", f"no HTTP status line: {record.block[:40]!r}")
    if response is not None:
        if row.measure(source, "status", response.status):
            return row
        body, content_type = response.body, response.fields.get("content-type", "")
        if not body:
            row.measure(source, "bytes", 0)
            return row
    media = _media(content_type)
    if media and row.measure(source, "media", media[:MAX_MEDIA_CHARS]):
        return row
    if record.length > source.max_record_bytes:
        row.measure(source, "bytes", record.length, f"a record of {record.length} bytes")
        return row
    if response is not None:
        decoded = _decoded(row, response, source)
        if decoded is None:
            return row
        body = decoded
    return _content(row, body, content_type, source)


def _decoded(row: Row, response: Response, source: Source) -> bytes | None:
    """Return the body of a response; None if it cannot be decoded, of which the row says why."""
    try:
        return decode_body(response, source.max_record_bytes)
    except BodyError as error:
        if error.failure:
            row.fail(error.failure, error.detail)
        elif error.coding:
            media = _media(response.fields.get("content-type", "")) or "a body"
            row.measure(source, "media", f"{media[:MAX_MEDIA_CHARS]} in {error.coding}", error.detail)
        else:
            row.measure(source, "bytes", error.bytes, error.detail)
        return None


def _content(row: Row, body: bytes, content_type: str, source: Source) -> Row:
    if not body or body.isspace():
        row.measure(source, "bytes", 0)
        return row
    binary = next((media for start, media in _BINARY.items() if body.startswith(start)), "")
    media = binary or _media(content_type) or _sniff(body)
    said = f"{content_type[:60] or 'no media type'}, but begins with {body[:8]!r}"
    if row.measure(source, "media", media[:MAX_MEDIA_CHARS], said):
        return row
    if media in HTML:
        if not row.measure(source, "bytes", len(body)):
            row.payload, row.media_type = body, content_type or media
        return row
    text = decode(body, charset_of(body, content_type or "charset=utf-8", html=False))
    if not row.measure(source, "bytes", len(body) if text and not text.isspace() else 0):
        row.text = text.encode("utf-8", "replace")
    return row


def _media(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _sniff(body: bytes) -> str:
    """Return the media type of a body that came without one: HTML by its first bytes, text if nothing is binary."""
    start = body[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith(
        (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<!--", b"<meta", b"<div", b"<p")
    ):
        return "text/html"
    if start.startswith((b"<?xml", b"<svg", b"<rss")):
        return "text/xml"
    is_binary = any(byte < 9 or 14 <= byte < 27 for byte in body[:1024])
    return "application/octet-stream" if is_binary else "text/plain"
