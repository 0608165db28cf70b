from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.passes.keys import alive_keys, priorities_of
from pipelines.tables import publish_table
from shards.store import Store
from stages.dedup.order import LAST


@pytest.fixture
def store(tmp_path: Any) -> Store:
    return Store(tmp_path)


def test_keys_leave_out_what_late_limits_dropped(store: Store) -> None:
    keys = publish_table(store, pa.table({"doc_id": [1, 2, 5], "shingles": [7, 8, 9]}), "judge/keys", "a")
    late = publish_table(store, pa.table({"doc_id": [2, 3]}), "late/marks", "a")
    assert alive_keys(store, keys, None, ["shingles"]).to_pydict() == {"shingles": [7, 8, 9]}
    found = alive_keys(store, keys, late, ["shingles", "doc_id"])
    assert found.to_pydict() == {"shingles": [7, 9], "doc_id": [1, 5]}


@pytest.mark.parametrize(("largest_first", "order"), [(True, [5, 1, 2]), (False, [1, 5, 2])])
def test_a_column_of_the_verdicts_instead_of_the_priorities_of_sources(
    store: Store, largest_first: bool, order: list[int]
) -> None:
    verdicts = pa.table({"doc_id": [0, 1, 2, 4, 5], "score": [9.5, 0.5, None, 8.0, 0.75]})
    entry = publish_table(store, verdicts, "judge/verdicts", "a")
    table = pa.table({"doc_id": [1, 2, 5]})
    found = priorities_of(store, table, (Any, []), (("score", largest_first), entry))  # type: ignore[arg-type]
    assert found[1] == LAST
    assert [table.column("doc_id")[at].as_py() for at in np.argsort(found)] == order
