"""From a WARC record to a row: a document, a drop with its reason, or a failure."""

from __future__ import annotations

from typing import Final

from stages.html.charset import charset_of, decode
from stages.readers.base import Row, Source, parse_date
from stages.readers.guard import guarded
from stages.readers.http import BodyError, decode_body, parse_response
from stages.readers.warc import DOCUMENT_TYPES, VERSIONS, Record

HTML: Final = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
PLAIN: Final = frozenset({"text/plain"})

# What servers send under a Content-Type of text.
_BINARY: Final = (
    b"%PDF-",
    b"\x89PNG",
    b"GIF8",
    b"\xff\xd8\xff",
    b"PK\x03\x04",
    b"\x1f\x8b\x08",
    b"RIFF",
    b"wOFF",
    b"OTTO",
)


def to_row(record: Record, source: Source) -> Row:
    """Judge one record by its header, then its status, its media type and its body, the cheapest first."""
    return guarded(_judge, Row(record.offset), record, source)


def _judge(row: Row, record: Record, source: Source) -> Row:
    uri = record.fields.get("warc-target-uri", "").strip()
    if uri.startswith("<") and uri.endswith(">"):
        uri = uri[1:-1]
    row.url, row.date = uri or None, parse_date(record.fields.get("warc-date", ""))
    if record.failure:
        return row.mark(*record.failure)
    if not record.type:
        return row.mark("bad_record", "no WARC-Type")
    if record.version not in VERSIONS:
        return row.mark("unsupported_format", f"version {record.version[:40]!r} is not one of {', '.join(VERSIONS)}")
    if record.type == "continuation" or "warc-segment-number" in record.fields:
        return row.mark("segmented", f"segment {record.fields.get('warc-segment-number', '?')} of a {record.type}")
    if record.type not in DOCUMENT_TYPES:
        return row.mark("not_a_document", f"WARC-Type {record.type}")
    if not record.block:
        return row.mark("empty")
    return _document(row, record, source)


def _document(row: Row, record: Record, source: Source) -> Row:
    body, content_type = record.block, record.fields.get("content-type", "")
    response = None
    if record.type == "response" or _media(content_type) == "application/http":
        response = parse_response(record.block)
        if response is None and _media(content_type) in ("application/http", ""):
            return row.mark("bad_http", f"no HTTP status line: {record.block[:40]!r}")
    if response is not None:
        if not 200 <= response.status < 300:
            return row.mark("http_status", value=response.status)
        body, content_type = response.body, response.fields.get("content-type", "")
        if not body:
            return row.mark("empty")
    media = _media(content_type)
    if media and media not in HTML and media not in PLAIN:
        return row.mark("unsupported_media", media[:100])
    if record.length > source.max_record_bytes:
        return row.mark("too_large", f"a record of {record.length} bytes", record.length)
    if response is not None:
        try:
            body = decode_body(response, source.max_record_bytes)
        except BodyError as error:
            return row.mark(error.reason, error.detail, error.value)
    return _content(row, body, content_type, media or _sniff(body))


def _content(row: Row, body: bytes, content_type: str, media: str) -> Row:
    if not body or body.isspace():
        return row.mark("empty")
    if body.startswith(_BINARY) or not media:
        return row.mark("unsupported_media", f"{content_type[:60] or 'no media type'}, but begins with {body[:8]!r}")
    if media in HTML:
        row.payload, row.media_type = body, content_type or media
        return row
    text = decode(body, charset_of(body, content_type or "charset=utf-8", html=False))
    if not text or text.isspace():
        return row.mark("empty")
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
    binary = start.startswith((b"<?xml", b"<svg", b"<rss")) or any(byte < 9 or 14 <= byte < 27 for byte in body[:1024])
    return "" if binary else "text/plain"
