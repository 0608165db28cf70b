"""Whatever one record makes its reader's code raise is that record's failure; who wants to stop is not held up."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.readers import READ_FAILURES, Source, content, decompress, http, jsonl, parquet, read
from stages.readers.base import Row
from stages.readers.guard import PASSING, explain, guarded


class PanicError(BaseException):
    """As a panic of a Rust library arrives: no ``Exception``."""


ERRORS = (
    ValueError("a\nb"),
    RecursionError(),
    MemoryError(),
    OSError(5, "no input"),
    StopIteration(),
    PanicError("oh"),
)
SOME = (MemoryError(), PanicError("oh"))


def rows(data: bytes, path: str, **options: Any) -> list[dict[str, Any]]:
    batches = list(read(Source(0, path, **options), lambda _: io.BytesIO(data)))
    return pa.Table.from_batches(batches).to_pylist()


def raising(error: BaseException, when: Callable[..., bool], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def work(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            raise error
        return otherwise(*args, **kwargs)

    return work


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_record_that_raises_is_a_failure_that_says_why(error: BaseException) -> None:
    row = guarded(raising(error, lambda row: True, lambda row: row), Row(7, text=b"text"))
    assert (row.offset, row.text, row.failure) == (7, None, "crashed")
    assert type(error).__name__ in str(row.detail)
    assert "crashed" in READ_FAILURES


def test_what_is_explained_is_one_short_line() -> None:
    assert explain(ValueError("first\nsecond")) == "ValueError: first"
    assert explain(PanicError()) == "PanicError"
    assert len(explain(ValueError("x" * 9_999))) == 200
    assert explain(ValueError("\ud800")) == "ValueError: ?"


@pytest.mark.parametrize("error", PASSING)
def test_who_wants_to_stop_is_not_held_up(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl.json, "loads", raising(error(), lambda text: True, json.loads))
    with pytest.raises(error if error is not GeneratorExit else (GeneratorExit, RuntimeError)):
        rows(b'{"text": "a"}\n', "x.jsonl")


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_one_line_of_json(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = raising(error, lambda text: "second" in text, json.loads)
    monkeypatch.setattr(jsonl.json, "loads", loads)
    found = rows(b'{"text": "first"}\n{"text": "second"}\n{"text": "third"}\n', "x.jsonl")
    assert [row["text"] for row in found] == ["first", None, "third"]
    assert found[1]["failed"]
    assert found[1]["offset"] == 18


def page(body: bytes, coding: str = "") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: %s\r\n\r\n" % coding.encode()
    header = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: %d\r\n\r\n"
    return header % len(head + body) + head + body + b"\r\n\r\n"


@pytest.mark.parametrize("error", SOME, ids=repr)
def test_one_body_of_a_coding(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [brotli.compress(b"<p>%d</p>" % number) for number in range(3)]
    decode = raising(error, lambda body, limit: body == bodies[1], http._unbrotli)
    monkeypatch.setattr(http, "_unbrotli", decode)
    found = rows(b"".join(page(body, "br") for body in bodies), "x.warc")
    assert [row["payload"] for row in found] == [b"<p>0</p>", None, b"<p>2</p>"]
    assert (found[1]["reason"], found[1]["offset"]) == ("decompression", len(page(bodies[0], "br")))


@pytest.mark.parametrize("error", SOME, ids=repr)
def test_one_text_in_a_charset(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"
    monkeypatch.setattr(content, "decode", raising(error, lambda body, _: body == b"text1", content.decode))
    found = rows("".join(f"{header}text{i}\r\n\r\n" for i in range(3)).encode(), "x.warc")
    assert [(row["text"], row["reason"]) for row in found] == [("text0", None), (None, "crashed"), ("text2", None)]


class Decoder:
    """A decoder of gzip members that raises from the ``which``-th on."""

    def __init__(self, which: int, error: BaseException) -> None:
        self.which, self.error, self.made = which, error, 0

    def new(self, compression: str) -> Any:
        inner = self.original(compression)
        self.made += 1
        return self if self.made >= self.which else inner

    original = staticmethod(decompress.new_member)

    def copy(self) -> Any:
        return self

    def decompress(self, piece: bytes, *limit: int) -> bytes:
        raise self.error


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_one_member_of_a_compressed_file(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [gzip.compress(b'{"text": "%d"}\n' % number) for number in range(3)]
    monkeypatch.setattr(decompress, "new_member", Decoder(3, error).new)
    found = rows(b"".join(members), "x.jsonl.gz", format="jsonl")
    assert [row["text"] for row in found if not row["failed"]] == ["0", "1"]
    (failed,) = [row for row in found if row["failed"]]
    assert (failed["reason"], failed["offset"]) == ("decompression", len(members[0] + members[1]))
    assert type(error).__name__ in failed["detail"]


def packed(texts: list[str], **more: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts} | more), sink, row_group_size=5)
    return sink.getvalue()


TEXTS = [f"text {number}" for number in range(12)]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_one_row_that_cannot_be_converted(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = raising(error, lambda batch, _: "text 7" in batch.column(0).to_pylist(), parquet._columns)
    monkeypatch.setattr(parquet, "_columns", convert)
    found = rows(packed(TEXTS), "x.parquet")
    assert [row["text"] for row in found] == [None if text == "text 7" else text for text in TEXTS]
    assert (found[7]["reason"], found[7]["offset"], found[7]["failed"]) == ("unreadable", 7, True)


@pytest.mark.parametrize("error", [*ERRORS[:2], *ERRORS[3:]], ids=repr)
def test_one_row_group_that_cannot_be_decoded(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    original = pq.ParquetFile.iter_batches

    def iter_batches(file: Any, rows: int, row_groups: list[int], **options: Any) -> Iterator[pa.RecordBatch]:
        if row_groups == [1]:
            raise error
        yield from original(file, rows, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    found = rows(packed(TEXTS), "x.parquet")
    assert [row["text"] for row in found] == [*TEXTS[:5], *[None] * 5, *TEXTS[10:]]
    assert {row["reason"] for row in found[5:10]} == {"unreadable"}


def test_a_footer_that_only_python_refuses_is_one_failure() -> None:
    data = packed(TEXTS, other=[0] * 12)
    # A name that is no UTF-8 passes Arrow, and fails when Python asks for it; so does a name that two columns have.
    for name in (b"\xffther", b"text\0", b"texts"):
        changed = data.replace(b"other", name)
        found = rows(changed, "x.parquet")
        assert [row["reason"] for row in found] in (["unreadable"], [None] * 12)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), sink)
    (row,) = rows(sink.getvalue(), "x.parquet")
    assert (row["reason"], row["failed"]) == ("unreadable", True)
