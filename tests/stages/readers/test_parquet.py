"""Parquet: rows in order, numbered by row, and what cannot be decoded counted."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shards.schema import MAX_BATCH_BYTES, make_doc_id
from stages.readers import Source, read


def packed(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def rows(data: bytes, path: str = "x.parquet", **options: Any) -> list[dict[str, Any]]:
    batches = list(read(Source(index=2, path=path, **options), lambda _: io.BytesIO(data)))
    return pa.Table.from_batches(batches).to_pylist()


def test_rows_come_in_order_with_their_number_url_and_date() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    table = pa.table({"text": ["a", "b"], "url": ["http://X.example:1/", None], "date": [moment, None], "more": [1, 2]})
    found = rows(packed(table))
    assert [row["text"] for row in found] == ["a", "b"]
    assert [row["host"] for row in found] == ["x.example", None]
    assert [row["date"] for row in found] == [moment.replace(microsecond=0), None]
    assert [(row["doc_id"], row["offset"]) for row in found] == [(make_doc_id(2, i), i) for i in range(2)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_columns_of_any_string_type_are_read(kind: pa.DataType) -> None:
    texts = [f"text {i % 7} é" for i in range(5_000)]
    table = pa.table({"text": pa.array(texts).cast(kind), "date": [date(2024, 1, 1)] * 5_000})
    found = rows(packed(table, row_group_size=1_300))
    assert [row["text"] for row in found] == texts
    assert [row["offset"] for row in found] == list(range(5_000))


def test_null_empty_large_and_wrongly_encoded_texts_are_counted() -> None:
    raw = pa.array([None, b"", b"bad \xff", b"x" * 2_000, b"good"], pa.binary())
    found = rows(packed(pa.table({"text": raw.view(pa.string())})), max_record_bytes=1_000)
    assert [row["reason"] for row in found] == ["missing_text", "empty", "bad_encoding", "too_large", None]
    assert [row["failed"] for row in found] == [True, False, True, False, False]


def test_a_file_without_the_text_column_is_one_failure_that_names_its_columns() -> None:
    (row,) = rows(packed(pa.table({"content": ["a"], "text": [1]})))
    assert (row["reason"], row["failed"]) == ("missing_text", True)
    assert "content: string" in row["detail"]


def test_a_file_cut_short_or_overwritten_is_one_failure() -> None:
    data = packed(pa.table({"text": ["abc"] * 100}))
    for damaged in (data[:-20], b"PAR1" + b"\xff" * 100 + b"PAR1", b"PAR1"):
        assert [row["reason"] for row in rows(damaged)] == ["unreadable"]


def test_a_damaged_row_group_costs_its_rows_only_and_later_rows_keep_their_numbers() -> None:
    table = pa.table({"text": [f"a longer text, number {i}" for i in range(300)]})
    data = bytearray(packed(table, row_group_size=100, compression="zstd", use_dictionary=False))
    column = pq.ParquetFile(io.BytesIO(bytes(data))).metadata.row_group(1).column(0)
    for at in range(column.data_page_offset + 40, column.data_page_offset + 60):
        data[at] ^= 0xFF
    found = rows(bytes(data))
    assert [row["offset"] for row in found] == [*range(100), 100, *range(200, 300)]
    assert [row["offset"] for row in found if row["failed"]] == [100]
    assert found[-1]["doc_id"] == make_doc_id(2, 299)


def test_no_rows_is_a_counted_failure() -> None:
    assert [row["reason"] for row in rows(packed(pa.table({"text": pa.array([], pa.string())})))] == ["empty_file"]


def test_batches_stay_below_their_size() -> None:
    data = packed(pa.table({"text": ["x" * 700_000 + str(i) for i in range(20)]}))
    batches = list(read(Source(index=0, path="x"), lambda _: io.BytesIO(data)))
    assert sum(batch.num_rows for batch in batches) == 20
    assert all(batch.nbytes <= MAX_BATCH_BYTES + 20_000 for batch in batches)
