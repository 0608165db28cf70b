from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from pipelines.chain import stage_names
from pipelines.inspection.verdicts import overlaid, verdicts
from pipelines.passes.drops import SCHEMA

# Reads runs that were made on Beam.
pytestmark = pytest.mark.integration

JUDGED = pa.table(
    {
        "doc_id": pa.array([1, 2, 3], pa.int64()),
        "dropped_by": ["read", None, None],
        "reason": ["empty", None, None],
        "value": pa.array([None, None, None], pa.float64()),
        "failed": [False, False, False],
    }
)


def drop(doc_id: int) -> pa.Table:
    row = {"doc_id": doc_id, "dropped_by": "near_dedup_v1", "reason": "near_duplicate", "value": 0.9}
    return pa.Table.from_pylist([row | {"witness": 2, "jaccard": 0.9}], schema=SCHEMA)


@pytest.mark.parametrize("which", ["made", "cut_fine", "bare"])
def test_seen_is_kept_and_dropped_and_failed(which: str, request: pytest.FixtureRequest, corpus: Any) -> None:
    made = request.getfixturevalue(which)
    rows = made.verdicts()
    # The run without stages reads two files more, a failure each: a bad line, and nothing at all.
    records = corpus.records + 2 * (which == "bare")
    assert len(rows) == len({row["doc_id"] for row in rows}) == records
    outcomes = Counter("failed" if r["failed"] else "dropped" if r["dropped_by"] else "kept" for r in rows)
    assert outcomes["kept"] == sum(made.statistics("drops", split)["survivors"] for split in made.splits)
    seen = records
    for name in stage_names(made.run.recipe):
        mine = [row for row in rows if row["dropped_by"] == name]
        assert all(row["reason"] for row in mine)
        seen -= len(mine)
    assert seen == outcomes["kept"]
    assert outcomes.total() == records


def test_verdicts_do_not_depend_on_ranges_and_splits(made: Any, cut_fine: Any) -> None:
    assert cut_fine.verdicts() == made.verdicts()


def test_without_deduplication_copies_stay(bare: Any, corpus: Any) -> None:
    kept = {row["url"] for row in bare.verdicts() if row["dropped_by"] is None}
    assert {url for pair in corpus.exact + corpus.near for url in pair} <= kept
    assert [row["reason"] for row in bare.verdicts() if row["doc_id"] >> 32 >= 4] == ["bad_json", "empty_file"]


def test_there_is_a_table_for_each_split(made: Any) -> None:
    tables = list(verdicts(made.run))
    assert len(tables) == 4
    assert len({table.schema for table in tables}) == 1
    assert {"witness", "jaccard", "content_hash", "text_bytes", "perplexity_v1.perplexity"} <= set(
        tables[0].column_names
    )


def test_late_drops_lie_over_what_the_judges_said() -> None:
    found = overlaid(JUDGED, drop(3)).to_pylist()
    assert [row["dropped_by"] for row in found] == ["read", None, "near_dedup_v1"]
    assert [row["witness"] for row in found] == [None, None, 2]
    assert [row["value"] for row in found] == [None, None, 0.9]
    assert overlaid(JUDGED, SCHEMA.empty_table()).select(JUDGED.column_names).equals(JUDGED)


def test_a_drop_of_a_document_that_is_not_there_is_caught() -> None:
    with pytest.raises(AssertionError, match="does not have"):
        overlaid(JUDGED, drop(4))
