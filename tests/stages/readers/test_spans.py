"""Spans of a file, read one by one, are the file: whatever is in it, wherever it is cut."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.schema import split_doc_id
from stages.readers import Digest, Source, Span, cut, read
from stages.readers.detect import LAYOUT_BYTES
from stages.readers.members import PROBE_BYTES, SLICE_BYTES
from stages.readers.spans import MEMBERS_HEAD_BYTES

LIMIT = 60_000


class Counted(io.BytesIO):
    """Counts the bytes that are read."""

    taken = 0

    def read(self, count: int | None = -1, /) -> bytes:
        block = super().read(count)
        self.taken += len(block)
        return block


def rows(data: bytes, path: str, span: Span | None = None, index: int = 0, **options: Any) -> list[dict[str, Any]]:
    source = Source(index, path, span=span, **{"max_record_bytes": LIMIT} | options)
    digest = Digest()
    batches = list(read(source, lambda _: io.BytesIO(data), digest))
    assert digest.hex == xxhash.xxh3_128(data if span is None else data[span.begin : span.end]).hexdigest()
    found = pa.Table.from_batches(batches).to_pylist() if batches else []
    assert [split_doc_id(row["doc_id"]) for row in found] == [(index, number) for number in range(len(found))]
    return found


def without(found: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in found]


def assert_spans_are_the_file(data: bytes, path: str, places: Sequence[int], *ignored: str, **options: Any) -> None:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    spans = list(itertools.starmap(Span, itertools.pairwise(edges))) or [Span(0, 0)]
    parts = [row for i, span in enumerate(spans) for row in rows(data, path, span, i, **options)]
    whole = rows(data, path, **options)
    if [row["reason"] for row in whole] == ["empty_file"] and len(spans) > 1:
        whole = []
    ignored = ("doc_id", "source_index", *ignored)
    assert without(parts, *ignored) == without(whole, *ignored)


def line(text: str) -> bytes:
    return json.dumps({"text": text, "url": "http://a.example/"}).encode()


LINES = st.one_of(
    st.text(max_size=30).map(line),
    st.binary(max_size=20),
    st.integers(LIMIT - 30, 2 * LIMIT).map(lambda count: line("x" * count)),
    st.sampled_from([b"", b" \t", b'{"text": "a\xff"}', b"\xef\xbb\xbf", b"[1]"]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\n", b"\xef\xbb\xbf\n"]),
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\n\n"])), max_size=9),
    st.booleans(),
    st.lists(st.integers(0, 1 << 30), max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 2)), max_size=4),
)
def test_spans_of_lines(
    start: bytes, pieces: list[tuple[bytes, bytes]], ended: bool, places: list[int], near: list[tuple[int, int]]
) -> None:
    data = start + b"".join(text + end for text, end in pieces)
    data = data if ended else data.rstrip(b"\n")
    # Any place, and the places just around the starts of lines.
    starts = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    near_places = [max(0, starts[which % len(starts)] + shift) for which, shift in near]
    assert_spans_are_the_file(data, "x.jsonl", [*places, *near_places], format="jsonl")


def record(text: str, length: int | None = None) -> bytes:
    body = text.encode()
    header = "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Type: text/plain\r\n"
    return f"{header}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body + b"\r\n\r\n"


def member(content: bytes, level: int = 6) -> bytes:
    return gzip.compress(content, level, mtime=0)


def noise(count: int) -> str:
    return random.Random(count).randbytes(count).hex()


SIZES = st.sampled_from([0, 1, 40, 3_000, 20_000, 50_000])
MEMBERS = st.one_of(
    SIZES.map(lambda size: member(record(noise(size)))),
    st.tuples(SIZES, st.integers(-3, 900)).map(lambda t: member(record(noise(t[0]), max(0, 2 * t[0] + t[1])))),
    SIZES.map(lambda size: member(record(noise(size)), 0)[: -size - 9]),
    st.tuples(SIZES, st.integers(11, 200)).map(lambda t: damaged(member(record(noise(t[0]))), t[1])),
    st.sampled_from([member(b""), member(b"no record"), bytes(40), b"no member", b"\x1f\x8b"]),
)
MIXED = st.one_of(
    SIZES.map(lambda size: member(record(noise(size)) + record("second"))),
    SIZES.map(lambda size: member(b"\r\n" + record(noise(size)))),
    SIZES.map(lambda size: member(record(noise(size))[:-30]) + member(record(noise(size))[-30:])),
)


def damaged(data: bytes, at: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(MEMBERS, max_size=8),
    st.lists(st.integers(0, 1 << 30), max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 1)), max_size=4),
)
def test_spans_of_warc_members(members: list[bytes], places: list[int], near: list[tuple[int, int]]) -> None:
    members = [member(record("first")), *members]
    starts = [0, *itertools.accumulate(map(len, members))]
    near_places = [max(0, starts[which % len(starts)] + shift) for which, shift in near]
    assert_spans_are_the_file(b"".join(members), "x.warc.gz", [*places, *near_places])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(MEMBERS, MIXED), max_size=8), st.lists(st.integers(0, 1 << 30), max_size=6))
def test_spans_where_records_and_members_do_not_agree(members: list[bytes], places: list[int]) -> None:
    assert_spans_are_the_file(b"".join([member(record("first")), *members]), "x.warc.gz", places, "offset")


def table(count: int, **more: Any) -> pa.Table:
    texts = [None if number % 7 == 3 else f"text {number} {noise(40)}" for number in range(count)]
    return pa.table({"text": texts, "url": [f"http://a.example/{number}" for number in range(count)]} | more)


def packed(content: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(content, sink, **options)
    return sink.getvalue()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 60),
    st.integers(1, 20),
    st.booleans(),
    st.lists(st.integers(0, 1 << 30), max_size=6),
    st.sampled_from(["text", "no such column"]),
    st.integers(0, 500),
)
def test_spans_of_row_groups(count: int, group: int, dictionary: bool, places: list[int], key: str, at: int) -> None:
    data = packed(table(count), row_group_size=group, use_dictionary=dictionary, compression="zstd")
    footer = int.from_bytes(data[-8:-4], "little") + 8
    # Damage among the pages costs rows, and the same rows in any span.
    data = damaged(data, 4 + at) if 4 + at < len(data) - footer else data
    assert_spans_are_the_file(data, "x.parquet", places, text_key=key)


JSONL = b"".join(line(f"document {i} {noise(i % 900)}") + b"\n" for i in range(600))
WARC = b"".join(member(record(f"document {i} {noise(i % 900)}")) for i in range(600))
PARQUET = packed(table(6_000), row_group_size=40, compression="none", use_dictionary=False)
FILES = {"x.jsonl": JSONL, "x.warc.gz": WARC, "x.parquet": PARQUET}


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("target", [10_000, 100_000])
def test_a_large_file_is_cut_into_even_spans_that_are_read_alone(path: str, target: int) -> None:
    data = FILES[path]
    spans = cut(path, len(data), target, "auto", lambda _: io.BytesIO(data))
    assert len(spans) > len(data) // target * 0.7
    assert [span.begin for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == len(data)
    # The last one of Parquet has the footer as well.
    assert all(span.end - span.begin <= target + 10_000 for span in spans[:-1])
    parts = [rows(data, path, span) for span in spans]
    assert all(parts)
    assert without(list(itertools.chain(*parts)), "doc_id") == without(rows(data, path), "doc_id")


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (JSONL[:9_999], "x.jsonl"),
        (b"", "x.jsonl"),
        (gzip.compress(JSONL), "x.jsonl.gz"),
        (zstandard.compress(JSONL), "x.jsonl.zst"),
        (b"".join(map(record, ["text"] * 999)), "x.warc"),
        (gzip.compress(b"".join(map(record, map(noise, range(300))))), "x.warc.gz"),
        (member(record("one") + record("two")) + WARC, "x.warc.gz"),
        (b"".join(zstandard.compress(record(noise(i))) for i in range(300)), "x.warc.zst"),
        (bz2.compress(JSONL), "x.jsonl.bz2"),
        (b"some words\n" * 9_999, "x.txt"),
        (b"[" + JSONL, "x.json"),
        (packed(table(4_000)), "x.parquet"),
        (packed(table(4_000), row_group_size=9)[:-1], "x.parquet"),
        (b"PAR1" + bytes(99_999), "x.parquet"),
    ],
)
def test_what_cannot_be_cut_is_one_span(data: bytes, path: str) -> None:
    spans = cut(path, len(data), 10_000, "auto", lambda _: io.BytesIO(data))
    assert spans == (Span(0, len(data)),)
    assert without(rows(data, path, spans[0])) == without(rows(data, path))


def test_a_format_that_is_said_decides_over_the_name() -> None:
    words = b"some words\n" * 9_999
    assert len(cut("x.txt", len(words), 10_000, "jsonl", lambda _: io.BytesIO(words))) == 11
    assert len(cut("x.jsonl", len(words), 10_000, "warc", lambda _: io.BytesIO(words))) == 1


@pytest.mark.parametrize(
    ("path", "most"), [("x.jsonl", LAYOUT_BYTES), ("x.warc.gz", LAYOUT_BYTES + MEMBERS_HEAD_BYTES)]
)
def test_cutting_looks_at_the_head_only(path: str, most: int) -> None:
    source = Counted(FILES[path] * 20)
    cut(path, len(FILES[path]) * 20, 10_000, "auto", lambda _: source)
    assert source.taken <= most


@pytest.mark.parametrize("path", ["x.jsonl", "x.warc.gz"])
def test_a_span_reads_its_bytes_once_and_one_record(path: str) -> None:
    data = FILES[path]
    for span in cut(path, len(data), 150_000, "auto", lambda _: io.BytesIO(data)):
        source = Counted(data)
        list(read(Source(0, path, span=span), lambda _, s=source: s, Digest()))  # type: ignore[misc]
        assert source.taken <= LAYOUT_BYTES + span.end - span.begin + 2_000 + 2 * SLICE_BYTES + PROBE_BYTES


class Endless(Counted):
    """A line without an end, of any length, out of no memory."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._at, self._size = 0, size

    def read(self, count: int | None = -1, /) -> bytes:
        assert count is not None
        assert count >= 0
        count = max(0, min(count, self._size - self._at))
        self._at += count
        self.taken += count
        return b"x" * count

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (self._size if whence == 2 else 0)
        return self._at


@pytest.mark.parametrize(("span", "reasons"), [(Span(0, 1 << 20), ["too_large"]), (Span(1 << 20, 9 << 20), [])])
def test_an_endless_line_belongs_to_one_span_and_is_never_held(span: Span, reasons: list[str]) -> None:
    size = 40 << 20
    source = Endless(size)
    tracemalloc.start()
    batches = list(read(Source(0, "x.jsonl", "jsonl", span=span), lambda _: source))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row["reason"] for batch in batches for row in batch.to_pylist()] == reasons
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [size] * len(reasons)
    assert peak < 20 << 20
    assert source.taken <= (size if reasons else span.end - span.begin) + LAYOUT_BYTES


def test_a_span_inside_one_member_is_empty_and_searched_once() -> None:
    data = member(record("a")) + member(record(noise(200_000)), 0) + member(record("b"))
    for span in (Span(5_000, 200_000), Span(1_000, 1_001), Span(len(data) - 20, len(data))):
        source = Counted(data)
        assert not list(read(Source(0, "x.warc.gz", span=span), lambda _, s=source: s))  # type: ignore[misc]
        assert source.taken <= LAYOUT_BYTES + span.end - span.begin + SLICE_BYTES + PROBE_BYTES


def test_a_file_of_blank_lines_is_a_failure_as_a_whole_only() -> None:
    data = b"\n \n" * 99
    assert [row["reason"] for row in rows(data, "x.jsonl", Span(0, len(data)))] == ["empty_file"]
    assert [row["reason"] for row in rows(data, "x.jsonl", Span(0, 10**9))] == ["empty_file"]
    assert not rows(data, "x.jsonl", Span(0, len(data) - 1))
    assert not rows(data, "x.jsonl", Span(9, len(data)))
    assert [row["reason"] for row in rows(b"", "x.jsonl", Span(0, 0))] == ["empty_file"]


INNER = [member(record(f"inner {i}")) for i in range(3)]
BEFORE, AFTER = member(record("before")), member(record("after"))


def holder(inner: bytes) -> bytes:
    """A member that holds members, stored as they are."""
    header = b"WARC/1.0\r\nWARC-Type: resource\r\nContent-Type: application/gzip\r\nContent-Length: %d\r\n\r\n"
    return member(header % len(inner) + inner + b"\r\n\r\n", 0)


@pytest.mark.parametrize("after", [AFTER, b""])
def test_an_archive_inside_an_archive_fails_where_a_span_begins_in_it_and_no_other_record_does(after: bytes) -> None:
    data = BEFORE + holder(b"".join(INNER)) + after
    ends = [len(BEFORE), len(data) - len(after)]
    whole = rows(data, "x.warc.gz")
    assert [row["reason"] for row in whole] == [None, "unsupported_media", None][: len(whole)]
    last_inner = data.index(INNER[2])
    for place in range(1, len(data)):
        first, second = rows(data, "x.warc.gz", Span(0, place)), rows(data, "x.warc.gz", Span(place, len(data)))
        if ends[0] < place <= last_inner:
            assert [row["text"] for row in first] == ["before", None]
            assert (first[1]["reason"], first[1]["failed"], first[1]["offset"]) == ("bad_record", True, ends[0])
            assert "begins with" in first[1]["detail"]
            assert [row["text"] for row in second if row["offset"] >= ends[1]] == ["after"] * bool(after)
        else:
            assert without(first + second, "doc_id") == without(whole, "doc_id")


def test_damage_that_shows_long_after_the_next_start_ends_the_span() -> None:
    stored = bytearray(holder(INNER[0] + random.Random(1).randbytes(500_000)))
    stored[-8] ^= 1  # the checksum, which is looked at last
    data = BEFORE + bytes(stored) + AFTER
    place = data.index(INNER[0]) - 1
    first, second = rows(data, "x.warc.gz", Span(0, place)), rows(data, "x.warc.gz", Span(place, len(data)))
    assert [row["reason"] for row in first] == [None, "decompression"]
    assert [row["text"] for row in second if not row["failed"]] == ["inner 0", "after"]
