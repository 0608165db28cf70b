from __future__ import annotations

import pyarrow as pa

from pipelines.planning.sources import PlannedSource
from pipelines.reading import source_of, without_textless
from pipelines.recipe import SourceSettings
from shards.schema import DOCUMENT
from stages.readers import Source, Span

MARKED = pa.schema([*(DOCUMENT.field(name) for name in ("doc_id", "text", "url", "dropped_by", "reason", "value"))])


def test_a_drop_stays_the_drop_of_who_made_it() -> None:
    rows = [
        {"doc_id": 1, "text": "text"},
        {"doc_id": 2, "text": None},
        {"doc_id": 3, "text": None, "dropped_by": "s_v1", "reason": "why"},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([*MARKED, DOCUMENT.field("detail")], {"unit": "u"}))
    found = without_textless(batch)
    assert [row["dropped_by"] for row in found.to_pylist()] == [None, "read", "s_v1"]
    assert found.schema.equals(batch.schema, check_metadata=True)
    assert without_textless(batch.slice(0, 1)).equals(batch.slice(0, 1))


def test_a_reader_is_told_all_that_decides_what_it_gives() -> None:
    settings = SourceSettings(
        glob="*",
        format="jsonl",
        text_key="body",
        url_key="link",
        date_key="day",
        max_record_bytes=99,
        domain="books",
        min_status=100,
        max_status=404,
    )
    planned = PlannedSource(7, "a.jsonl", 10, 20, 40, "00" * 16, 0)
    found = source_of(planned, settings, "/in/a.jsonl")
    assert found == Source(7, "/in/a.jsonl", "jsonl", "", None, "body", "link", "day", 99, 100, 404, Span(10, 20))
