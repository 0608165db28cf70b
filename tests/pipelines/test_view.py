"""The view of final documents, against drops and edits laid over a list of documents one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.tables import TableFile, publish_table
from pipelines.view import EDIT_FILE, ViewFiles, documents, edits_of
from shards.store import FileEntry, Store

JUDGED = pa.schema(
    [("doc_id", pa.int64()), ("text", pa.string()), ("content_hash", pa.string()), ("text_bytes", pa.int64())]
)
TEXTS = st.text(st.sampled_from("aé中🙂\n"), max_size=6)
QUICK = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[list[dict[str, Any]]], list[int], list[list[dict[str, Any]]]]:
    """Batches of documents, the doc_ids that were dropped, and the edits of each batch."""
    ids = sorted(draw(st.sets(st.integers(0, 99), min_size=1, max_size=8)))
    rows = [{"doc_id": doc_id, "text": draw(TEXTS), "content_hash": f"h{doc_id}"} for doc_id in ids]
    rows = [row | {"text_bytes": len(str(row["text"]).encode())} for row in rows]
    cut = draw(st.integers(0, len(rows)))
    batches, edits = [rows[:cut], rows[cut:]], []
    for batch in batches:
        mine = []
        for row in batch:
            text = str(row["text"])
            if draw(st.booleans()):
                start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
                places = {"start": len(text[:start].encode()), "end": len(text[:end].encode())}
                told = {"reason": "r", "replacement": draw(st.sampled_from(["", "ñ"])), "edited_by": "s"}
                mine.append({"doc_id": row["doc_id"], **places, **told})
        edits.append(mine)
    return batches, sorted(draw(st.sets(st.sampled_from(ids)))), edits


def published(store: Store, name: str, schema: pa.Schema, batches: list[list[dict[str, Any]]]) -> FileEntry:
    with store.scratch() as scratch:
        file = TableFile(scratch / "table.arrow")
        for rows in batches:
            file.write(pa.RecordBatch.from_pylist(rows, schema))
        return file.publish(store, name, "split")


def laid(row: dict[str, Any], edits: list[list[dict[str, Any]]]) -> dict[str, Any]:
    text = row["text"].encode()
    for edit in (edit for batch in edits for edit in batch if edit["doc_id"] == row["doc_id"]):
        text = text[: edit["start"]] + edit["replacement"].encode() + text[edit["end"] :]
    return row | {"text": text.decode(), "text_bytes": len(text)}


@QUICK
@given(drawn=splits(), wanted=st.sets(st.integers(0, 99)))
def test_drops_and_edits_are_laid_over_what_was_judged(tmp_path: Path, drawn: Any, wanted: set[int]) -> None:
    batches, gone, edits = drawn
    store = Store(str(tmp_path))
    judged = published(store, "judged", JUDGED, batches)
    drops = publish_table(store, pa.table({"doc_id": pa.array(gone, pa.int64())}), "drops", "split")
    files = ViewFiles(judged, drops, published(store, "edits", EDIT_FILE, edits))
    rows = [row for batch in batches for row in batch]
    found = list(documents(store, files))
    assert len(found) == len(batches)
    kept = [laid(row, edits) for row in rows if row["doc_id"] not in gone]
    assert [row for batch in found for row in batch.to_pylist()] == kept
    # Without an edit file the texts are those that were judged.
    plain = documents(store, ViewFiles(judged, drops))
    assert [row for batch in plain for row in batch.to_pylist()] == [row for row in rows if row["doc_id"] not in gone]
    # Asked for by doc_id, dropped ones are there as well.
    ids = np.array(sorted(wanted), np.int64)
    some = [row for batch in documents(store, files, ids) for row in batch.to_pylist()]
    assert some == [laid(row, edits) for row in rows if row["doc_id"] in wanted]
    told = edits_of(store, files, ids)
    expected: dict[int, list[dict[str, Any]]] = {}
    for edit in (edit for batch in edits for edit in batch if edit["doc_id"] in wanted):
        expected.setdefault(edit["doc_id"], []).append({k: v for k, v in edit.items() if k != "doc_id"})
    assert told == expected


def test_an_edit_file_of_other_batches_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    row = {"doc_id": 1, "text": "a", "content_hash": "h", "text_bytes": 1}
    judged = published(store, "judged", JUDGED, [[row], [row | {"doc_id": 2}]])
    drops = publish_table(store, pa.table({"doc_id": pa.array([], pa.int64())}), "drops", "split")
    with pytest.raises(ValueError, match="shorter"):
        list(documents(store, ViewFiles(judged, drops, published(store, "edits", EDIT_FILE, [[]]))))
