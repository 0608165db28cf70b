from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.tables import (
    TableFile,
    group_counts,
    one_array,
    publish_table,
    read_batches,
    read_table,
    structured,
    unstructured,
)
from shards.errors import IncompleteError
from shards.store import Store

DTYPE = np.dtype([("a", "<i8"), ("b", "<f8"), ("c", "<u4")])
TABLE = pa.table({"a": [1, 2, 3], "text": ["x", None, "z"], "hash": pa.array([b"12"] * 3, pa.binary(2))})


def test_a_published_table_comes_back_with_its_schema(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for table in (TABLE, TABLE.slice(1, 1), TABLE.slice(0, 0), TABLE.schema.empty_table()):
        entry = publish_table(store, table, "k", "u")
        assert read_table(store, entry).equals(table)
        assert entry.rows == table.num_rows


def test_equal_tables_have_equal_bytes_however_they_are_chunked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    chunked = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 0), TABLE.slice(1)])
    told = TABLE.replace_schema_metadata({"headrace.unit": "u"})
    entries = {publish_table(store, table, "k", "u") for table in (TABLE, chunked, told)}
    assert len(entries) == 1


def test_some_columns_of_a_table(tmp_path: Path) -> None:
    store = Store(tmp_path)
    entry = publish_table(store, TABLE, "k", "u")
    found = read_table(store, entry, ["hash", "a", "unknown"])
    assert sorted(found.column_names) == ["a", "hash"]
    assert found.column("a").to_pylist() == [1, 2, 3]


def test_batches_come_one_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.scratch() as scratch:
        file = TableFile(scratch / "x.arrow")
        for batch in TABLE.to_batches(max_chunksize=1):
            file.write(batch)
        entry = file.publish(store, "k", "u")
        file.close()
    assert [batch.num_rows for batch in read_batches(store, entry)] == [1, 1, 1]
    assert pa.Table.from_batches(read_batches(store, entry)).equals(TABLE)


def test_a_table_needs_a_batch_and_one_schema(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="at least one batch"):
        TableFile(tmp_path / "x").publish(Store(tmp_path), "k", "u")
    file = TableFile(tmp_path / "y")
    file.write(TABLE.to_batches()[0])
    with pytest.raises(pa.ArrowInvalid):
        file.write(TABLE.drop_columns(["a"]).to_batches()[0])
    file.close()


def test_a_missing_table_is_incomplete(tmp_path: Path) -> None:
    store = Store(tmp_path)
    entry = publish_table(store, TABLE, "k", "u")
    store.delete(entry.path)
    with pytest.raises(IncompleteError):
        read_table(store, entry)
    with pytest.raises(IncompleteError):
        next(read_batches(store, entry))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.integers(-5, 5), st.floats(allow_nan=False), st.integers(0, 9)), max_size=5))
def test_structured_arrays_travel_as_tables(tmp_path: Path, rows: list[tuple[int, float, int]]) -> None:
    array = np.array(rows, DTYPE)
    store = Store(tmp_path)
    entry = publish_table(store, unstructured(array), "k", "u")
    found = structured(read_table(store, entry), DTYPE)
    assert found.dtype == DTYPE
    assert found.tobytes() == array.tobytes()
    assert structured(unstructured(array[::2]), DTYPE).tobytes() == array[::2].tobytes()


def test_a_column_as_one_array() -> None:
    chunked = pa.chunked_array([[1], [], [2, 3]], pa.int64())
    assert one_array(chunked).equals(pa.array([1, 2, 3]))
    assert one_array(pa.chunked_array([], pa.binary(2))).equals(pa.array([], pa.binary(2)))


def test_groups_are_counted_and_sorted_with_null_as_a_group() -> None:
    table = pa.table({"by": ["b", None, "a", "b"], "failed": [True, False, False, True], "other": [1, 2, 3, 4]})
    assert group_counts(table, ["by", "failed"]).to_pylist() == [
        {"by": "a", "failed": False, "rows": 1},
        {"by": "b", "failed": True, "rows": 2},
        {"by": None, "failed": False, "rows": 1},
    ]
    assert group_counts(table.slice(0, 0), ["by"]).to_pylist() == []
