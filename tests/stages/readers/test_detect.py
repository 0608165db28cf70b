"""What a file is; and that a file which is not read is counted."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import random
import zipfile
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
import zstandard

from shards.errors import UserError
from stages.readers import Source, read
from stages.readers.detect import layout_of

WARC = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\ntext\r\n\r\n"
JSON = b'{"text": "text"}\n'
ARC = b"http://example.org/ 192.0.2.1 20240101000000 text/html 40\nHTTP/1.1 200 OK\n\n" + b"x" * 30


def zipped() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("archive/data.warc", WARC)
    return sink.getvalue()


def with_dictionary() -> bytes:
    samples = [b"WARC/1.0 sample number %d of a set " % i * 4 for i in range(200)]
    dictionary = zstandard.train_dictionary(2048, samples)
    inner = zstandard.ZstdCompressor(dict_data=dictionary).compress(WARC)
    content = dictionary.as_bytes()
    return b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content + inner


def rows(data: bytes, path: str = "x", **options: Any) -> list[dict[str, Any]]:
    batches = list(read(Source(index=0, path=path, **options), lambda _: io.BytesIO(data)))
    return pa.Table.from_batches(batches).to_pylist()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("content", [WARC, JSON, b"\r\n" + WARC, b"\xef\xbb\xbf" + JSON])
def test_container_and_compression_are_found_by_their_bytes(pack: Any, content: bytes) -> None:
    assert [row["text"] for row in rows(pack(content))] == ["text"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bz2.compress(WARC), "bzip2"),
        (lzma.compress(JSON), "xz"),
        (b"\x04\x22\x4d\x18" + WARC, "lz4"),
        (zipped(), "zip"),
        (with_dictionary(), "dictionary"),
        (ARC, "ARC"),
        (gzip.compress(ARC), "ARC"),
        (b"filedesc://x.arc 0.0.0.0 20240101000000 text/plain 20\n1 0 Internet\n", "ARC"),
        (b'[{"text": "a"}]', "JSON array"),
        (b"plain words", "plain words"),
        (gzip.compress(b"%PDF-1.4"), "PDF"),
        (gzip.compress(b"PAR1 and so on"), "Parquet"),
        (b"\0\1\2\3", "x00"),
    ],
)
def test_a_container_that_is_not_read_is_one_counted_drop(data: bytes, what: str) -> None:
    (row,) = rows(data)
    assert (row["reason"], row["failed"], row["offset"]) == ("unsupported_format", False, 0)
    assert what in row["detail"]


def test_names_decide_where_bytes_do_not() -> None:
    assert [row["reason"] for row in rows(b"not json\n", "a/b.jsonl")] == ["bad_json"]
    assert [row["reason"] for row in rows(b"no record\n", "b.warc.gz")] == ["bad_record"]
    assert [row["reason"] for row in rows(JSON, "b.jsonl", format="warc")] == ["bad_record"]
    assert [row["reason"] for row in rows(JSON, "b.jsonl", format="parquet")] == ["unreadable"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), FileNotFoundError),
        (PermissionError(errno.EACCES, "Permission denied"), PermissionError),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), IsADirectoryError),
        (OSError("the store is away"), OSError),
    ],
)
def test_a_planned_source_that_cannot_be_opened_is_an_error_and_no_row(error: OSError, kind: type[OSError]) -> None:
    def open_input(path: str) -> BinaryIO:
        raise error

    with pytest.raises(kind, match=r"planned.*some/a\.warc"):
        list(read(Source(index=0, path="some/a.warc"), open_input))


def test_an_unknown_format_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="format 'csv' is unknown"):
        list(read(Source(index=0, path="x", format="csv"), lambda _: io.BytesIO()))


class Failing(io.BytesIO):
    """Fails where a read would reach ``at``."""

    def __init__(self, data: bytes, at: int) -> None:
        super().__init__(data)
        self._at = at

    def read(self, count: int | None = -1, /) -> bytes:
        if count is None or count < 0 or self.tell() + count > self._at:
            raise OSError(errno.ECONNRESET, "Connection reset by peer")
        return super().read(count)


LINES = b'{"text": "%s"}\n' % random.Random(3).randbytes(60_000).hex().encode() * 2


@pytest.mark.parametrize("data", [LINES, gzip.compress(LINES), zstandard.compress(LINES), gzip.compress(WARC * 9_000)])
def test_an_error_of_the_input_is_raised_wherever_it_comes(data: bytes) -> None:
    damaged = bytearray(data)
    # After damage the search for the next member reads as well.
    damaged[700:710] = b"\xff" * 10
    for content in (data, bytes(damaged)):
        for at in (100, 1_000, len(data) // 2, len(data)):
            with pytest.raises(ConnectionResetError):
                list(read(Source(index=0, path="x.jsonl"), lambda _, c=content, a=at: Failing(c, a)))  # type: ignore[misc]


def test_an_error_while_reading_is_not_a_property_of_the_record() -> None:
    class Broken(io.BytesIO):
        def read(self, count: int | None = -1, /) -> bytes:
            if self.tell() > 100:
                raise OSError("the network went away")
            return super().read(min(count or 0, 60))

    with pytest.raises(OSError, match="went away"):
        list(read(Source(index=0, path="x"), lambda _: Broken(WARC * 5)))


@pytest.mark.parametrize(
    ("data", "path", "source_format", "layout"),
    [
        (JSON, "x", "auto", "lines"),
        (b"\xef\xbb\xbf" + JSON, "x", "auto", "lines"),
        (b"not json", "x.jsonl", "auto", "lines"),
        (b"not json", "x", "jsonl", "lines"),
        (b"not json", "x", "auto", None),
        (gzip.compress(JSON), "x.jsonl.gz", "auto", None),
        (gzip.compress(WARC), "x", "auto", "members"),
        (gzip.compress(b"\r\n" + WARC), "x", "warc", "members"),
        (gzip.compress(WARC), "x", "jsonl", None),
        (gzip.compress(b"no record"), "x.warc.gz", "warc", None),
        (zstandard.compress(WARC), "x.warc.zst", "warc", None),
        (WARC, "x.warc", "warc", None),
        (b"PAR1", "x", "auto", "row groups"),
        (JSON, "x", "parquet", "row groups"),
        (ARC, "x.jsonl", "auto", None),
        (b"", "x.jsonl", "jsonl", None),
    ],
)
def test_the_head_says_what_spans_would_consist_of(
    data: bytes, path: str, source_format: str, layout: str | None
) -> None:
    assert layout_of(data, path, source_format) == layout
