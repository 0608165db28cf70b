"""Parquet: rows in order, numbered by row, and what cannot be decoded counted."""

from __future__ import annotations

import errno
import io
import random
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shards.schema import MAX_BATCH_BYTES, make_doc_id
from stages.readers import Source, parquet, read


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


def test_a_file_without_the_text_column_fails_row_by_row_and_names_its_columns() -> None:
    found = rows(packed(pa.table({"content": ["a", "b", "c"], "text": [1, 2, 3]})))
    assert [(row["reason"], row["failed"], row["offset"]) for row in found] == [
        ("missing_text", True, i) for i in range(3)
    ]
    assert "content: string" in found[0]["detail"]


def test_a_file_cut_short_or_overwritten_is_one_failure() -> None:
    data = packed(pa.table({"text": ["abc"] * 100}))
    for damaged in (data[:-20], b"PAR1" + b"\xff" * 100 + b"PAR1", b"PAR1"):
        assert [row["reason"] for row in rows(damaged)] == ["unreadable"]


def damaged_group() -> bytes:
    table = pa.table({"text": [f"a longer text, number {i}" for i in range(300)]})
    data = bytearray(packed(table, row_group_size=100, compression="zstd", use_dictionary=False))
    column = pq.ParquetFile(io.BytesIO(bytes(data))).metadata.row_group(1).column(0)
    for at in range(column.data_page_offset + 40, column.data_page_offset + 60):
        data[at] ^= 0xFF
    return bytes(data)


def test_a_damaged_row_group_costs_its_rows_and_every_one_is_counted() -> None:
    found = rows(damaged_group())
    assert [row["offset"] for row in found] == list(range(300))
    assert [row["doc_id"] for row in found] == [make_doc_id(2, i) for i in range(300)]
    assert [row["offset"] for row in found if row["failed"]] == list(range(100, 200))
    assert {row["reason"] for row in found} == {None, "unreadable"}
    assert "rows 100 to 199" in found[100]["detail"]
    assert found[199]["detail"] == "as row 100"


def with_varint(data: bytes, which: int, old: bytes, new: bytes) -> bytes:
    """Replace the ``which``-th occurrence of ``old`` in the footer."""
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(which + 1):
        at = data.index(old, at + 1)
    return data[:at] + new + data[at + len(new) :]


PLAIN = packed(
    pa.table({"text": [f"text {i}" for i in range(300)]}), row_group_size=150, use_dictionary=False, compression="none"
)


@pytest.mark.parametrize(("claimed", "zigzag"), [(100, b"\xc8\x01"), (250, b"\xf4\x03"), (5_000, b"\x90\x4e")])
def test_a_group_of_another_length_than_the_footer_claims_shifts_no_number(claimed: int, zigzag: bytes) -> None:
    # The varint 300 is zigzag 150: the third in the footer is the number of rows of the first group.
    data = with_varint(PLAIN, 2, b"\xac\x02", zigzag)
    assert pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).num_rows == claimed
    found = rows(data)
    assert [row["doc_id"] for row in found] == [make_doc_id(2, i) for i in range(claimed + 150)]
    assert [row["text"] for row in found[claimed:]] == [f"text {i}" for i in range(150, 300)]
    assert sum(row["failed"] for row in found) == max(0, claimed - 150)


def test_rows_beyond_what_is_counted_one_by_one_are_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_LOST_ROWS", 30)
    found = rows(damaged_group())
    assert [row["offset"] for row in found if row["failed"]] == list(range(100, 131))
    assert found[130]["detail"] == "as row 100, and the 69 rows that follow"
    assert found[-1]["doc_id"] == make_doc_id(2, 299)


def test_a_footer_that_claims_more_rows_than_can_be_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_FILE_ROWS", 299)
    (row,) = rows(PLAIN)
    assert (row["reason"], row["failed"]) == ("unreadable", True)


class Unsteady(io.BytesIO):
    """An input whose reads fail from the ``calm``-th on."""

    def __init__(self, data: bytes, calm: int, error: Exception) -> None:
        super().__init__(data)
        self.calm, self._error = calm, error

    def read(self, count: int | None = -1, /) -> bytes:
        self.calm -= 1
        if self.calm < 0:
            raise self._error
        return super().read(count)


def test_an_error_of_the_input_is_raised_at_whatever_read_it_comes() -> None:
    text = [random.Random(i).randbytes(1_000).hex() for i in range(3_000)]
    data = packed(pa.table({"text": text}), row_group_size=500, compression="none")
    count = Unsteady(data, 10**6, OSError())
    list(read(Source(index=0, path="x"), lambda _: count))
    needed = 10**6 - count.calm
    assert needed > 5
    for error in (OSError(errno.ECONNRESET, "Connection reset"), RuntimeError("a client's own")):
        for calm in range(needed):
            with pytest.raises(type(error), match=str(error).rpartition("]")[2].strip()):
                list(read(Source(index=0, path="x"), lambda _, c=calm, e=error: Unsteady(data, c, e)))  # type: ignore[misc]


def test_want_of_memory_is_no_property_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 1000 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", fail)
    with pytest.raises(MemoryError):
        rows(PLAIN)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_any_unit_are_seconds_rounded_down_and_none_where_no_calendar_reaches(unit: str) -> None:
    scale = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = [0, -scale - 1, 5 * scale + scale // 2, None, 2**63 - 1, -(2**63)]
    column = pa.array(values, pa.int64()).view(pa.timestamp(unit))
    found = rows(packed(pa.table({"text": ["a"] * 6, "date": column})))
    seconds = [None if row["date"] is None else int(row["date"].timestamp()) for row in found]
    assert seconds[:4] == [0, (-scale - 1) // scale, 5, None]
    if unit == "ms":
        assert seconds[4:] == [None, None]


def test_dates_beyond_the_calendar_are_none() -> None:
    days = pa.array([0, -1, 2**31 - 1, None], pa.int32()).view(pa.date32())
    found = rows(packed(pa.table({"text": ["a"] * 4, "date": days})))
    assert [row["date"] and row["date"].date() for row in found] == [date(1970, 1, 1), date(1969, 12, 31), None, None]


def test_no_rows_is_a_counted_failure() -> None:
    assert [row["reason"] for row in rows(packed(pa.table({"text": pa.array([], pa.string())})))] == ["empty_file"]


def test_batches_stay_below_their_size() -> None:
    data = packed(pa.table({"text": ["x" * 700_000 + str(i) for i in range(20)]}))
    batches = list(read(Source(index=0, path="x"), lambda _: io.BytesIO(data)))
    assert sum(batch.num_rows for batch in batches) == 20
    assert all(batch.nbytes <= MAX_BATCH_BYTES + 20_000 for batch in batches)


def test_a_batch_with_more_text_than_is_copied_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed(pa.table({"text": [None if i % 5 == 2 else f"text {i}" for i in range(300)], "url": ["u"] * 300}))
    expected = rows(data)
    monkeypatch.setattr(parquet, "MAX_COPIED_BYTES", 100)
    assert rows(data) == expected
