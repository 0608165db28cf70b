from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.planning.sources import SOURCES, PlannedSource, SourceTable, checksums_as_array, unlike

CHECKSUMS = [f"{number:032x}" for number in range(4)]


def table(*rows: tuple[str, int, int, int]) -> SourceTable:
    columns: dict[str, Any] = {
        "index": range(len(rows)),
        "path": [row[0] for row in rows],
        "begin": [row[1] for row in rows],
        "end": [row[2] for row in rows],
        "size": [row[3] for row in rows],
        "checksum": checksums_as_array(CHECKSUMS[: len(rows)]),
        "cut_as": pa.nulls(len(rows), pa.string()),
    }
    return SourceTable(pa.table(columns, schema=SOURCES))


SPANNED = table(("a", 0, 5, 5), ("/c/b", 0, 4, 9), ("/c/b", 4, 9, 9), ("empty", 0, 0, 0))


def test_files_are_found_behind_their_spans() -> None:
    files = SPANNED.files()
    assert (files.first.tolist(), files.rows.tolist()) == ([0, 1, 3], [1, 2, 1])
    assert files.paths.to_pylist() == ["a", "/c/b", "empty"]
    assert SPANNED.keys("/c").to_pylist() == ["a", "b", "empty"]
    assert len(SourceTable().files()) == len(SourceTable().keys("/c")) == 0


def test_sources_are_built_from_their_rows() -> None:
    found = list(SPANNED.take(np.array([2, 0], np.int32), np.array([7, 8], np.int32)))
    assert found == [
        PlannedSource(2, "/c/b", 4, 9, 9, CHECKSUMS[2], 7),
        PlannedSource(0, "a", 0, 5, 5, CHECKSUMS[0], 8),
    ]
    assert [(one.span, one.span_bytes) for one in found] == [((4, 9), 5), (None, 5)]
    assert SPANNED.span_bytes.tolist() == [5, 4, 5, 0]


def test_a_table_only_grows() -> None:
    grown = SPANNED.with_rows(SPANNED.table.slice(0, 1))
    assert grown.begins_with(SPANNED)
    assert SPANNED.begins_with(SourceTable())
    assert SPANNED.begins_with(SPANNED)
    assert not SPANNED.begins_with(grown)
    assert not SPANNED.begins_with(table(("other", 0, 5, 5)))


def test_unlike_rows_are_told() -> None:
    assert unlike(pa.array([1, 2, 3]), pa.array([1, 0, 4])).tolist() == [1, 2]
