"""From WARC records to documents: HTTP, media types, charsets, and every reason to drop."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import brotli
import pyarrow as pa
import pytest

from shards.schema import make_doc_id
from stages.readers import READ, READ_FAILURES, READ_REASONS, RECORD, Source, read

PAGE = b"<html><body><p>The quick brown fox.</p></body></html>" * 20


def record(kind: str, body: bytes, **fields: str) -> bytes:
    named = {"WARC-Type": kind, "WARC-Target-URI": "http://Example.ORG:8080/a", "WARC-Date": "2024-05-06T07:08:09Z"}
    named |= {name.replace("_", "-"): value for name, value in fields.items()}
    header = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return b"WARC/1.1\r\n" + f"{header}Content-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n"


def response(body: bytes, status: str = "200 OK", **fields: str) -> bytes:
    named = {"Content-Type": "text/html"} | {name.replace("_", "-"): value for name, value in fields.items()}
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
    return record("response", head.encode() + b"\r\n" + body, Content_Type="application/http; msgtype=response")


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    batches = list(read(Source(index=7, path="x.warc", **options), lambda _: io.BytesIO(data)))
    return pa.Table.from_batches(batches).to_pylist()


def only(data: bytes, **options: Any) -> dict[str, Any]:
    found = rows(data, **options)
    assert len(found) == 1
    return found[0]


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_a_response_has_its_payload_place_and_names() -> None:
    row = only(response(PAGE, Content_Type="text/html; charset=koi8-r"), domain="web", licence="CC0")
    assert row["payload"] == PAGE
    assert row["text"] is None
    assert row["media_type"] == "text/html; charset=koi8-r"
    assert (row["url"], row["host"]) == ("http://Example.ORG:8080/a", "example.org")
    assert row["date"].isoformat() == "2024-05-06T07:08:09+00:00"
    assert (row["doc_id"], row["source_index"], row["offset"]) == (make_doc_id(7, 0), 7, 0)
    assert (row["language"], row["domain"], row["licence"]) == ("und", "web", "CC0")
    assert (row["dropped_by"], row["reason"], row["failed"]) == (None, None, False)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (chunks(PAGE[:100], PAGE[100:]), {"Transfer_Encoding": "chunked"}),
        (PAGE, {"Transfer_Encoding": "chunked"}),
        (gzip.compress(PAGE), {"Content_Encoding": "gzip"}),
        (PAGE, {"Content_Encoding": "gzip"}),
        (gzip.compress(PAGE[:99]) + gzip.compress(PAGE[99:]), {"Content_Encoding": "x-gzip"}),
        (zlib.compress(PAGE), {"Content_Encoding": "deflate"}),
        (zlib.compress(PAGE)[2:-4], {"Content_Encoding": "deflate"}),
        (PAGE, {"Content_Encoding": "deflate"}),
        (brotli.compress(PAGE), {"Content_Encoding": "br"}),
        (PAGE, {"Content_Encoding": "br"}),
        (PAGE, {"Content_Encoding": "UTF-8"}),
        (brotli.compress(gzip.compress(PAGE)), {"Content_Encoding": "gzip, br"}),
        (chunks(gzip.compress(PAGE)), {"Content_Encoding": "gzip", "Transfer_Encoding": "chunked"}),
        (PAGE, {"Content_Type": ""}),
        (PAGE, {"Content_Type": "application/xhtml+xml"}),
    ],
)
def test_codings_are_undone_and_not_where_the_crawler_did_it(body: bytes, fields: dict[str, str]) -> None:
    assert only(response(body, **fields))["payload"] == PAGE


def test_a_body_that_ends_early_is_taken_as_far_as_it_goes() -> None:
    cut = gzip.compress(bytes(range(32, 127)) * 9)[:-20]
    kept = only(response(b"<p>" + PAGE[:50], Content_Type="text/html"))["payload"]
    assert kept == b"<p>" + PAGE[:50]
    assert only(response(cut, Content_Encoding="gzip"))["payload"]
    assert only(response(chunks(PAGE)[:60], Transfer_Encoding="chunked"))["payload"] == PAGE[:55]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (record("warcinfo", b"software: x"), "not_a_document"),
        (record("request", b"GET / HTTP/1.1\r\n\r\n"), "not_a_document"),
        (record("metadata", b"{}"), "not_a_document"),
        (record("revisit", b"HTTP/1.1 200 OK\r\n\r\n"), "not_a_document"),
        (record("monkeys", b"text"), "not_a_document"),
        (record("continuation", b"text", WARC_Segment_Number="2"), "segmented"),
        (record("resource", b"text", Content_Type="text/plain", WARC_Segment_Number="1"), "segmented"),
        (response(PAGE, "404 Not Found"), "http_status"),
        (response(b"", "301"), "http_status"),
        (response(b""), "empty"),
        (response(b" \r\n\t"), "empty"),
        (record("response", b"", Content_Type="application/http"), "empty"),
        (response(b"\x89PNG...", Content_Type="image/png"), "unsupported_media"),
        (response(b"%PDF-1.4"), "unsupported_media"),
        (response(b"\0\1\2\3", Content_Type=""), "unsupported_media"),
        (response(PAGE, Content_Encoding="compress"), "unsupported_media"),
        (record("response", b"20080430 dns", Content_Type="text/dns"), "unsupported_media"),
        (response(gzip.compress(b"a" * 3_000_000), Content_Encoding="gzip"), "too_large"),
        (response(brotli.compress(b"a" * 3_000_000), Content_Encoding="br"), "too_large"),
        (response(zlib.compress(b"a" * 3_000_000), Content_Encoding="deflate"), "too_large"),
        (record("resource", b"a" * 1_100_000, Content_Type="text/plain"), "too_large"),
        (record("response", b"GARBAGE", Content_Type="application/http"), "bad_http"),
        (response(b"5\r\nhello\r\nzz\r\n" + PAGE, Transfer_Encoding="chunked"), "bad_http"),
        (response(gzip.compress(PAGE)[:30] + b"xxxxxxxxxxx", Content_Encoding="gzip"), "decompression"),
        (response(b"\x91\x92 not brotli", Content_Encoding="br"), "decompression"),
        (record("resource", b"x").replace(b"WARC-Type", b"WARC-Kind"), "bad_record"),
        (record("resource", b"x").replace(b"WARC/1.1", b"WARC/2.0"), "unsupported_format"),
    ],
)
def test_every_other_record_is_counted_with_its_reason(data: bytes, reason: str) -> None:
    row = only(data, max_record_bytes=1 << 20)
    assert (row["dropped_by"], row["reason"]) == (READ, reason)
    assert row["text"] is None
    assert row["payload"] is None
    assert row["failed"] == (reason in READ_FAILURES)
    assert row["failed"] != (reason in READ_REASONS)
    if row["failed"]:
        assert row["detail"]


def test_a_status_is_the_value_of_its_drop() -> None:
    assert only(response(PAGE, "503 Busy"))["value"] == 503.0


def scores(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[f"read.{name}"] for name in ("kind", "status", "media", "bytes"))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (response(PAGE, "203 OK", Content_Type="Text/HTML; charset=x"), ("response", 203, "text/html", len(PAGE))),
        (response(gzip.compress(PAGE), Content_Encoding="gzip"), ("response", 200, "text/html", len(PAGE))),
        (response(PAGE, Content_Type=""), ("response", 200, "text/html", len(PAGE))),
        (record("conversion", b"text", Content_Type="text/plain"), ("conversion", None, "text/plain", 4)),
        (record("conversion", " \u00a0 ".encode(), Content_Type="text/plain"), ("conversion", None, "text/plain", 0)),
        # What an earlier check drops is measured no further.
        (response(PAGE, "404"), ("response", 404, None, None)),
        (response(b""), ("response", 200, None, 0)),
        (response(PAGE, Content_Type="image/png"), ("response", 200, "image/png", None)),
        (response(b"%PDF-1.4"), ("response", 200, "application/pdf", None)),
        (response(b"\0\1\2\3", Content_Type=""), ("response", 200, "application/octet-stream", None)),
        (response(PAGE, Content_Encoding="compress"), ("response", 200, "text/html in compress", None)),
        (record("request", b"GET"), ("request", None, None, None)),
        (record("monkeys", b"text"), ("unknown", None, None, None)),
        (record("resource", b"text", WARC_Segment_Number="1"), ("continuation", None, None, None)),
        (record("resource", b"x").replace(b"WARC/1.1", b"WARC/2.0"), ("unread", None, None, None)),
    ],
)
def test_what_was_measured_of_a_record_is_kept(data: bytes, found: tuple[Any, ...]) -> None:
    assert scores(only(data)) == found


def test_the_statuses_of_documents_are_a_setting_of_the_source() -> None:
    data = response(PAGE, "200 OK") + response(PAGE, "404 Not Found") + response(PAGE, "503 Busy")
    assert [row["reason"] for row in rows(data, max_status=404)] == [None, None, "http_status"]
    assert [row["reason"] for row in rows(data, min_status=400, max_status=599)] == ["http_status", None, None]


def test_a_large_image_is_no_document_before_it_is_too_large() -> None:
    row = only(response(b"x" * 200_000, Content_Type="image/png"), max_record_bytes=100_000)
    assert row["reason"] == "unsupported_media"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("Füße".encode(), "text/plain", "Füße"),
        ("Füße".encode("latin-1"), "text/plain; charset=ISO-8859-1", "Füße"),
        ("русский".encode("koi8-r"), "text/plain; charset='koi8-r'", "русский"),
        ("日本語".encode("utf-16"), "text/plain", "日本語"),
        (b"\xef\xbb\xbfabc", "text/plain; charset=latin-1", "abc"),
        (b"bad \xff byte", "text/plain; charset=utf-8", "bad \ufffd byte"),
        (b"a\0b", "text/plain; charset=utf-8", "a\0b"),
        (b"no codec of Python's \\u0041", "text/plain; charset=unicode_escape", "no codec of Python's \\u0041"),
    ],
)
def test_plain_text_is_decoded_by_its_charset(body: bytes, content_type: str, text: str) -> None:
    for kind in ("resource", "conversion"):
        assert only(record(kind, body, Content_Type=content_type))["text"] == text


def test_undeclared_text_that_is_not_utf8_is_detected() -> None:
    text = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 4
    assert only(record("conversion", text.encode("cp1251"), Content_Type="text/plain"))["text"] == text


def test_resource_html_is_a_payload_and_urls_in_brackets_are_unwrapped() -> None:
    row = only(record("resource", PAGE, Content_Type="text/html", WARC_Target_URI="<http://a.example/x>"))
    assert (row["payload"], row["url"], row["host"]) == (PAGE, "http://a.example/x", "a.example")


def test_header_lines_may_be_folded_lower_case_or_end_in_a_bare_line_feed() -> None:
    folded = b"warc/1.0\nwarc-type:\n\tconversion\nContent-type: text/plain\nCONTENT-LENGTH: 4\n\ntext\n\n"
    assert [row["text"] for row in rows(folded * 2)] == ["text", "text"]


def test_batches_have_the_schema_and_its_limits_and_number_every_record() -> None:
    parts = [record("resource", b"x" * size, Content_Type="text/plain") for size in (10, 3 << 20, 2 << 20, 5 << 20, 9)]
    parts += [record("warcinfo", b"x")] * 2_500
    batches = list(read(Source(index=1, path="x"), lambda _: io.BytesIO(b"".join(parts))))
    assert all(batch.schema.equals(RECORD) for batch in batches)
    assert [batch.num_rows for batch in batches] == [2, 1, 1, 2000, 501]
    ids = [row for batch in batches for row in batch.column("doc_id").to_pylist()]
    assert ids == [make_doc_id(1, i) for i in range(2_505)]
