"""JSON Lines: every line a row, whatever is in it, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.readers import READ_FAILURES, Source, read

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def rows(data: bytes, path: str = "x.jsonl", **options: Any) -> list[dict[str, Any]]:
    batches = list(read(Source(index=0, path=path, **options), lambda _: io.BytesIO(data)))
    return pa.Table.from_batches(batches).to_pylist()


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=8), st.booleans(), st.sampled_from(["", "gz", "zst"]))
def test_texts_come_back_as_they_were(texts: list[str], escaped: bool, compression: str) -> None:
    data = "".join(json.dumps({"text": text}, ensure_ascii=escaped) + "\n" for text in texts).encode()
    packed = {"": bytes, "gz": gzip.compress, "zst": zstandard.compress}[compression](data)
    found = rows(packed, path=f"x.jsonl.{compression}")
    assert [row["text"] for row in found] == [text if text.strip() else None for text in texts]
    assert [row["reason"] for row in found] == [None if text.strip() else "empty" for text in texts]
    for row, line in zip(found, data.split(b"\n"), strict=False):
        assert data[row["offset"] :].startswith(line)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_row_for_every_line_that_is_not_blank(data: bytes) -> None:
    found = rows(b'{"text": "first"}\n' + data)
    lines = [line for line in data.split(b"\n") if line.strip(b" \t\r")]
    assert len(found) == 1 + len(lines)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "\\ud800"}', "bad_encoding"),
        (b'{"text": "a\xff"}', "bad_encoding"),
        (b'{"text": "a"', "bad_json"),
        (b'["text"]', "bad_json"),
        (b"12", "bad_json"),
        (b"[" * 100_000, "bad_json"),
        (b'{"text": ' + b"9" * 10_000 + b"}", "bad_json"),
        (b"{}", "missing_text"),
        (b'{"text": null}', "missing_text"),
        (b'{"text": ["a"]}', "missing_text"),
        (b'{"text": ""}', "empty"),
        (b'{"text": " \\n "}', "empty"),
        (b'{"text": "' + b"x" * 200_000 + b'"}', "too_large"),
    ],
)
def test_a_line_that_is_no_document_is_counted_between_its_neighbours(line: bytes, reason: str) -> None:
    found = rows(b'{"text": "a"}\n' + line + b'\n{"text": "b"}', max_record_bytes=150_000)
    assert [row["reason"] for row in found] == [None, reason, None]
    assert found[1]["failed"] == (reason in READ_FAILURES)
    assert found[1]["offset"] == 14


def test_fields_have_the_names_that_the_source_gives() -> None:
    record = {"content": "text", "link": "https://A.example/\ud800", "created": "2023-01-02T03:04:05.678+02:00"}
    source = {"text_key": "content", "url_key": "link", "date_key": "created"}
    (row,) = rows(json.dumps(record).encode(), **source)
    assert (row["text"], row["url"], row["host"]) == ("text", "https://A.example/?", "a.example")
    assert row["date"].isoformat() == "2023-01-02T01:04:05+00:00"


def test_a_field_may_be_named_by_its_path() -> None:
    line = b'{"doc": {"body": "a text"}, "metadata": {"url": "http://a.example/"}, "a.b": {"c": "whole name first"}}\n'
    (row,) = rows(line, text_key="doc.body", url_key="metadata.url")
    assert (row["text"], row["url"]) == ("a text", "http://a.example/")
    assert [row["reason"] for row in rows(line, text_key="doc.title")] == ["missing_text"]
    assert [row["reason"] for row in rows(line, text_key="doc.body.deeper")] == ["missing_text"]


def test_lines_end_at_a_line_feed_only_and_blank_ones_are_no_records() -> None:
    data = '\ufeff{"text": "a\u2028b\\r\\nc"}\r\n\r\n \n{"text": "d"}\r\n'.encode()
    assert [row["text"] for row in rows(data)] == ["a\u2028b\r\nc", "d"]


def test_a_cut_gzip_gives_the_whole_lines_and_one_failure() -> None:
    data = gzip.compress(b"".join(b'{"text": "number %d"}\n' % i for i in range(500)))
    found = rows(data[:-300], path="x.jsonl.gz")
    texts = [row["text"] for row in found[:-1]]
    assert 0 < len(texts) < 500
    assert texts == [f"number {i}" for i in range(len(texts))]
    assert (found[-1]["reason"], found[-1]["failed"]) == ("truncated", True)


def test_a_damaged_member_does_not_cost_the_next_one() -> None:
    members = [gzip.compress(b'{"text": "number %d"}\n' % i) for i in range(3)]
    damaged = members[0] + members[1][:15] + b"\xff" + members[1][16:] + members[2]
    found = rows(damaged, path="x.jsonl.gz")
    assert [row["text"] for row in found if not row["failed"]] == ["number 0", "number 2"]
    assert sum(row["failed"] for row in found) == 1


def test_an_endless_line_is_passed_over_without_being_held() -> None:
    bomb = gzip.compress(b'{"text": "' + b"a" * 80_000_000 + b'"}\n{"text": "b"}\n', 1)
    tracemalloc.start()
    found = rows(bomb, path="x.jsonl.gz", max_record_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row["reason"] for row in found] == ["too_large", None]
    assert found[0]["value"] == 80_000_012.0
    assert peak < 16 << 20


def test_a_file_of_blank_lines_is_not_a_silent_nothing() -> None:
    assert [row["reason"] for row in rows(b"\n\n \n")] == ["empty_file"]
