"""What readers declare: one list of checks decides for a record and for a batch."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base import Stage, failures_of, reasons_of
from stages.failing import FAILURES
from stages.readers import READ, READ_FAILURES, READ_REASONS, RECORD, Reading, Source
from stages.readers.base import BatchBuilder, Row
from stages.readers.reading import HTML, SCORES, Rules, rules_of

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["response", "resource", "conversion", "request", "continuation", "unread", "unknown"]),
    "status": st.sampled_from([0, 199, 200, 204, 299, 300, 404, 999]),
    "media": st.sampled_from([*HTML, "text/plain", "image/png", "text/html in br", ""]),
    "bytes": st.sampled_from([0, 1, 99, 100, 101, 1 << 40]),
}
RECORDS = st.lists(st.fixed_dictionaries({}, optional=VALUES), min_size=1, max_size=8)
LIMIT = 100


def test_it_is_declared_as_a_stage_is() -> None:
    reading = cast(Stage, Reading())
    assert (reading.name, reasons_of(reading)) == (READ, READ_REASONS)
    assert failures_of(reading) == (*READ_FAILURES, *FAILURES)
    assert not set(READ_REASONS) & set(READ_FAILURES)
    assert RECORD.names[-len(SCORES) :] == [f"read.{name}" for name in SCORES]


@given(RECORDS)
def test_a_record_is_dropped_by_the_first_check_that_drops_one_of_its_scores(records: list[dict[str, Any]]) -> None:
    rules = rules_of(200, 299, LIMIT)
    columns, marks = rules.marks({name: [one.get(name) for one in records] for name in SCORES}, [None] * len(records))
    for row, one in enumerate(records):
        wanted = [
            ("unsupported_format", one.get("kind") == "unread"),
            ("segmented", one.get("kind") == "continuation"),
            ("not_a_document", one.get("kind", "response") not in ("response", "resource", "conversion")),
            ("http_status", not 200 <= one.get("status", 200) < 300),
            ("unsupported_media", one.get("media", "text/plain") not in (*HTML, "text/plain")),
            ("too_large", one.get("bytes", 1) > LIMIT),
            ("empty", one.get("bytes", 1) == 0),
        ]
        reason = next((name for name, is_hit in wanted if is_hit), None)
        assert marks["reason"][row].as_py() == reason
        assert any(rules.drops(name, value) for name, value in one.items()) == (reason is not None)
        assert {name: columns[f"read.{name}"][row].as_py() for name in SCORES} == {**dict.fromkeys(SCORES), **one}


@given(RECORDS, st.data())
def test_a_row_keeps_its_content_if_and_only_if_it_is_not_marked(records: list[dict[str, Any]], data: Any) -> None:
    source = Source(3, "x", max_record_bytes=LIMIT)
    builder = BatchBuilder(source)
    for one in records:
        row = Row(0, text=b"text")
        if data.draw(st.booleans()):
            row.fail("bad_json", "why")
        # A reader goes on only until something drops the record.
        any(row.measure(source, name, value, "what is said") for name, value in one.items())
        builder.add(row)
    batch = builder.flush()
    assert batch is not None
    batch.validate(full=True)
    assert batch.column("text").is_valid().equals(pc.is_null(batch.column("dropped_by")))
    assert batch.column("reason").is_valid().equals(batch.column("dropped_by").is_valid())
    assert batch.column("detail").is_valid().equals(batch.column("dropped_by").is_valid())
    failed = pc.is_in(batch.column("reason"), value_set=pa.array(READ_FAILURES))
    assert batch.column("failed").equals(failed)


def test_a_failure_comes_before_every_drop() -> None:
    columns, marks = rules_of(200, 299, LIMIT).marks(
        {"kind": ["response"], "status": [404], "media": [None], "bytes": [None]}, ["bad_http"]
    )
    assert {name: column[0].as_py() for name, column in marks.items()} == {
        "reason": "bad_http",
        "value": None,
        "failed": True,
        "detail": None,
    }
    assert columns["read.status"].to_pylist() == [404]


@pytest.mark.parametrize(("score", "value"), [("status", 100), ("status", 999), ("bytes", 1 << 50)])
def test_a_limit_may_be_absent(score: str, value: int) -> None:
    assert not Rules(Reading(min_status=None, max_status=None, max_record_bytes=None)).drops(score, value)
