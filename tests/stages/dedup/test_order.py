from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.dedup.order import LAST, can_order, order_of, priorities, taken

COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63) + 1, 2**63 - 2)).map(lambda values: pa.array(values, pa.int64())),
    st.lists(st.none() | st.floats(allow_nan=False)).map(lambda values: pa.array(values, pa.float64())),
    st.lists(st.none() | st.floats(width=32, allow_nan=False)).map(lambda values: pa.array(values, pa.float32())),
    st.lists(st.none() | st.integers(0, 2**31)).map(lambda values: pa.array(values, pa.timestamp("s", tz="UTC"))),
    st.lists(st.none() | st.booleans()).map(lambda values: pa.array(values, pa.bool_())),
)


@given(COLUMNS, st.booleans())
def test_priorities_are_in_the_order_of_the_values_and_nulls_are_last(column: pa.Array, largest_first: bool) -> None:
    found = priorities(column, largest_first=largest_first)
    values = column.to_pylist()
    assert found.dtype == np.int64
    for one, a in zip(values, found.tolist(), strict=True):
        assert (a == LAST) == (one is None)
        for other, b in zip(values, found.tolist(), strict=True):
            if one is not None and other is not None:
                assert (a < b) == (one > other if largest_first else one < other)
                assert (a == b) == (one == other)


def test_what_is_not_a_number_is_last() -> None:
    found = priorities(pa.array([float("nan"), 1.0, -0.0, 0.0]), largest_first=False)
    assert found[0] == LAST
    assert found[2] == found[3] < found[1] < LAST


def test_columns_without_an_order() -> None:
    assert not can_order(pa.string())
    with pytest.raises(TypeError, match="string"):
        priorities(pa.array(["a"]), largest_first=True)
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert priorities(pa.array([day], pa.timestamp("s", tz="UTC")), largest_first=False)[0] == day.timestamp()


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-5, 50)), unique_by=lambda row: row[1]))
def test_documents_come_by_priority_and_then_by_id(rows: list[tuple[int, int]]) -> None:
    priority, ids = (np.array(column, np.int64) for column in (zip(*rows, strict=True) if rows else ((), ())))
    assert [rows[at] for at in order_of(priority, ids).tolist()] == sorted(rows)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9))), st.lists(st.integers(0, 100)), st.booleans())
def test_rows_are_taken_as_by_indexing(rows: list[tuple[int, int]], places: list[int], is_odd: bool) -> None:
    kind = np.dtype([("a", "<u4" if is_odd else "<u8"), ("b", "<i8")])
    table, at = np.array(rows, kind), np.array([place % len(rows) for place in places if rows], np.int64)
    for one in (table, table[::-1]):
        found = taken(one, at)
        assert found.dtype == kind
        assert found.tolist() == one[at].tolist()
