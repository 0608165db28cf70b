"""From a WARC record to a row: a document, a drop with its reason, or a failure."""

from __future__ import annotations

from typing import Final

from stages.html.charset import charset_of, decode
from stages.readers.base import Row, Source, measure_replaced, parse_date
from stages.readers.guard import guarded
from stages.readers.http import BodyError, Response, decode_body, parse_response
from stages.readers.media import binary_media, content_type_of, media_of, sniff
from stages.readers.reading import CUTS, HTML, OTHER_CUT, SEGMENT, UNKNOWN, UNREAD, WRONG_DIGESTS
from stages.readers.stamps import digest_score
from stages.readers.warc import TYPES, VERSIONS, Record

MAX_MEDIA_CHARS: Final = 100


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
    body, header = record.block, record.fields.get("content-type", "")
    response = None
    if record.type == "response" or media_of(header) == "application/http":
        response = parse_response(record.block)
        if response is None and media_of(header) in ("application/http", ""):
            return row.fail("bad_http", f"no HTTP status line: {record.block[:40]!r}")
    if response is not None:
        if row.measure(source, "status", response.status):
            return row
        body, header = response.body, response.fields.get("content-type", "")
        if not body:
            row.measure(source, "bytes", 0)
            return row
    content_type = content_type_of(header)
    media = media_of(content_type)
    if media and row.measure(source, "media", media[:MAX_MEDIA_CHARS]):
        return row
    if record.length > source.max_record_bytes:
        row.measure(source, "bytes", record.length, f"a record of {record.length} bytes")
        return row
    if _is_spoilt(row, record, body, source):
        return row
    if response is not None:
        decoded = _decoded(row, response, media, source)
        if decoded is None:
            return row
        body = decoded
    identified = media_of(record.fields.get("warc-identified-payload-type", ""))
    return _content(row, body, content_type, media or identified, source)


def _is_spoilt(row: Row, record: Record, body: bytes, source: Source) -> bool:
    """Measure whether the crawler kept all of a record, and what its digests say; return whether that ends its way."""
    if cut := record.fields.get("warc-truncated", "").strip().lower():
        said = f"WARC-Truncated is {cut[:40]}"
        if row.measure(source, "truncated", cut if cut in CUTS else OTHER_CUT, said):
            return True
        if source.truncated == "fail":
            row.fail("incomplete_record", said)
            return True
    digest, said = digest_score(record.fields, record.block, body)
    if digest:
        if row.measure(source, "digest", digest, said):
            return True
        if digest in WRONG_DIGESTS and source.wrong_digest == "fail":
            row.fail("wrong_digest", said)
            return True
    return False


def _decoded(row: Row, response: Response, media: str, source: Source) -> bytes | None:
    """Return the body of a response; None if it cannot be decoded, of which the row says why."""
    try:
        return decode_body(response, source.max_record_bytes)
    except BodyError as error:
        if error.failure:
            row.fail(error.failure, error.detail)
        elif error.coding:
            said = f"{media[:MAX_MEDIA_CHARS] or 'a body'} in {error.coding}"
            row.measure(source, "media", said, error.detail)
        else:
            row.measure(source, "bytes", error.bytes, error.detail)
        return None


def _content(row: Row, body: bytes, content_type: str, declared: str, source: Source) -> Row:
    if not body or body.isspace():
        row.measure(source, "bytes", 0)
        return row
    media = binary_media(body) or declared or sniff(body)
    said = f"{content_type[:60] or 'no media type'}, but begins with {body[:8]!r}"
    if row.measure(source, "media", media[:MAX_MEDIA_CHARS], said):
        return row
    is_html = media in HTML
    text = decode(body, charset_of(body, content_type or (None if is_html else "charset=utf-8"), html=is_html))
    if row.measure(source, "bytes", len(body) if text and not text.isspace() else 0):
        return row
    if measure_replaced(row, source, text):
        return row
    if is_html:
        row.payload, row.media_type = body, content_type or media
    else:
        row.text = text.encode("utf-8", "replace")
    return row
