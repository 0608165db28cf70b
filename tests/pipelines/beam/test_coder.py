from __future__ import annotations

import pickle

import pyarrow as pa
from apache_beam.coders.typecoders import registry
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.beam import coder
from pipelines.beam.coder import RecordBatchCoder

ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=4), st.none() | st.binary(max_size=4), st.lists(st.integers(0, 9), max_size=3)
    ),
    max_size=8,
)
SCHEMA = pa.schema([("text", pa.string()), ("payload", pa.binary()), ("tokens", pa.large_list(pa.uint16()))])


def batch_of(rows: list[tuple[str | None, bytes | None, list[int]]], metadata: dict[str, str]) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.with_metadata(metadata))


@settings(deadline=None, max_examples=60)
@given(rows=ROWS, start=st.integers(0, 8), length=st.integers(0, 8), unit=st.text(max_size=4))
def test_round_trip_of_any_slice_with_its_metadata(
    rows: list[tuple[str | None, bytes | None, list[int]]], start: int, length: int, unit: str
) -> None:
    batch = batch_of(rows, {"headrace.unit": unit}).slice(start, length)
    there = RecordBatchCoder().decode(RecordBatchCoder().encode(batch))
    assert there.schema.equals(batch.schema, check_metadata=True)
    assert there.equals(batch)
    there.validate(full=True)


def test_a_slice_does_not_carry_its_parent() -> None:
    parent = batch_of([("x" * 1000, b"y" * 1000, [1] * 100)] * 200, {})
    assert len(RecordBatchCoder().encode(parent.slice(7, 1))) < 5_000 < len(RecordBatchCoder().encode(parent)) / 50


def test_beam_uses_it_for_batches() -> None:
    coder.register()
    coder.register()
    assert isinstance(registry.get_coder(pa.RecordBatch), RecordBatchCoder)


def test_a_batch_is_no_key() -> None:
    assert not RecordBatchCoder().is_deterministic()
    assert RecordBatchCoder().to_type_hint() is pa.RecordBatch


def test_travels_to_workers() -> None:
    assert RecordBatchCoder() == pickle.loads(pickle.dumps(RecordBatchCoder()))
