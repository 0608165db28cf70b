"""The digest is that of the bytes, however they were read."""

from __future__ import annotations

import bz2
import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.readers import Digest, Source, Span, read
from stages.readers.digest import HashedInput

LINE = b'{"text": "a text"}\n'


def packed(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(rows)], "more": [0] * rows}), sink, row_group_size=50)
    return sink.getvalue()


def xxh3(data: bytes) -> str:
    return str(xxhash.xxh3_128(data).hexdigest())


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=300),
    st.none() | st.tuples(st.integers(0, 320), st.integers(0, 320)),
    st.lists(st.tuples(st.none() | st.integers(0, 320), st.integers(0, 200)), max_size=8),
)
def test_any_reads_and_leaps_give_the_digest_of_the_span(
    data: bytes, ends: tuple[int, int] | None, steps: list[tuple[int | None, int]]
) -> None:
    span = None if ends is None else Span(min(ends), max(ends))
    plain, hashed = io.BytesIO(data), HashedInput(io.BytesIO(data), span)
    for place, count in steps:
        if place is not None:
            assert hashed.seek(place) == plain.seek(place)
        assert hashed.read(count) == plain.read(count)
        assert hashed.tell() == plain.tell()
    assert hashed.finish() == xxh3(data if span is None else data[span.begin : span.end])


class Sequential:
    """An input that cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)
        self.taken = 0

    def read(self, count: int = -1) -> bytes:
        block = self._inner.read(count)
        self.taken += len(block)
        return block

    def __enter__(self) -> Sequential:
        return self

    def __exit__(self, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"", "x.jsonl"),
        (LINE * 9_999, "x.jsonl"),
        (gzip.compress(LINE) * 99, "x.jsonl.gz"),
        (gzip.compress(LINE) + b"no member" * 9_999, "x.jsonl.gz"),
        (bz2.compress(LINE) + bytes(99_999), "x.jsonl.bz2"),
        (b"no container that is known" * 9_999, "x"),
    ],
)
def test_every_byte_of_a_file_is_hashed_and_fetched_once_also_behind_an_early_end(data: bytes, path: str) -> None:
    digest, source = Digest(), Sequential(data)
    list(read(Source(0, path), lambda _: source, digest))  # type: ignore[arg-type,return-value]
    assert digest.hex == xxh3(data)
    assert source.taken == len(data)


@pytest.mark.parametrize("data", [packed(333), packed(333)[:-1], b"PAR1" + bytes(99_999)])
def test_parquet_is_hashed_as_a_whole_and_in_spans(data: bytes) -> None:
    for span in (None, Span(0, len(data) // 3), Span(len(data) // 3, len(data))):
        digest = Digest()
        list(read(Source(0, "x.parquet", span=span), lambda _: io.BytesIO(data), digest))
        assert digest.hex == xxh3(data if span is None else data[span.begin : span.end])


def test_there_is_no_digest_of_a_source_that_was_not_read_to_its_end() -> None:
    digest = Digest()
    batches = read(Source(0, "x.jsonl"), lambda _: io.BytesIO(LINE * 5_000), digest)
    next(batches)
    assert digest.hex is None
    list(batches)
    assert digest.hex == xxh3(LINE * 5_000)
