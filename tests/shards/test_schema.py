from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.schema import DOCUMENT, TEXT_COLUMNS, make_doc_id, split_doc_id

SOURCES = st.integers(0, (1 << 31) - 1)
RECORDS = st.integers(0, (1 << 32) - 1)


@given(SOURCES, RECORDS)
def test_doc_id_leads_back_and_fits_int64(source: int, record: int) -> None:
    doc_id = make_doc_id(source, record)
    assert split_doc_id(doc_id) == (source, record)
    assert 0 <= doc_id < 1 << 63
    assert pa.array([doc_id], pa.int64())[0].as_py() == doc_id


@given(st.tuples(SOURCES, RECORDS), st.tuples(SOURCES, RECORDS))
def test_doc_id_orders_by_source_then_record(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (make_doc_id(*one) < make_doc_id(*other)) == (one < other)


@pytest.mark.parametrize(("source", "record"), [(1 << 31, 0), (0, 1 << 32), (-1, 0), (0, -1)])
def test_refuses_indices_that_do_not_fit(source: int, record: int) -> None:
    with pytest.raises(OverflowError, match="does not fit in a doc_id"):
        make_doc_id(source, record)


def test_text_columns_are_columns_that_may_be_null() -> None:
    assert all(DOCUMENT.field(name).nullable for name in TEXT_COLUMNS)


def test_marks_start_empty_so_they_may_be_null() -> None:
    assert all(DOCUMENT.field(name).nullable for name in ("dropped_by", "reason", "value", "detail"))
    assert not DOCUMENT.field("failed").nullable
