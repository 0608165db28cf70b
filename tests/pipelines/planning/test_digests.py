from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.planning.digests import DIGESTS, Digests, require_same
from pipelines.planning.sources import SOURCES, SourceTable
from shards.errors import UserError
from shards.store import Store


def digest(value: int) -> str:
    return f"{value:032x}"


def found(values: dict[int, int]) -> pa.Table:
    rows = [{"source_index": index, "digest": digest(value)} for index, value in values.items()]
    return pa.Table.from_pylist(rows, DIGESTS)


def sources(count: int) -> SourceTable:
    rows: list[dict[str, Any]] = [
        {"index": n, "path": f"{n}.jsonl", "begin": 0, "end": 1, "size": 1, "checksum": bytes(16)} for n in range(count)
    ]
    return SourceTable(pa.Table.from_pylist(rows, SOURCES))


@given(st.lists(st.dictionaries(st.integers(0, 20), st.integers(0, 3), max_size=6), max_size=4))
def test_the_first_digest_of_a_source_stays(tables: list[dict[int, int]]) -> None:
    known = Digests()
    slow: dict[int, int] = {}
    for table in tables:
        clash = any(slow.get(index, value) != value for index, value in table.items())
        if clash:
            with pytest.raises(UserError, match="has changed"):
                known.merged([found(table)], sources(21), "out")
            continue
        known = known.merged([found(table)], sources(21), "out")
        slow |= table
    assert known.of(range(21)) == [digest(slow[n]) if n in slow else None for n in range(21)]
    assert known.known(np.arange(21)).tolist() == [n in slow for n in range(21)]
    assert len(known) == len(slow)


def test_a_change_names_the_source_and_the_folder() -> None:
    known = Digests().merged([found({2: 1}), found({0: 5})], sources(3), "out")
    with pytest.raises(UserError, match=r"the source '2\.jsonl' has changed since this folder first read it") as caught:
        known.merged([found({0: 5, 1: 7}), found({2: 9})], sources(3), "out")
    assert caught.value.place == "out"
    require_same(None, digest(1), "a", "out")
    require_same(digest(1), digest(1), "a", "out")
    with pytest.raises(UserError, match="'a' has changed"):
        require_same(digest(1), digest(2), "a", "out")


@pytest.mark.parametrize("count", [0, 1, 70_000])
def test_digests_are_saved_whole(tmp_path: Path, count: int) -> None:
    table = pa.table({"source_index": range(count), "digest": [digest(n) for n in range(count)]}, schema=DIGESTS)
    Digests().merged([table], sources(0), "out").save(Store(tmp_path))
    loaded = Digests.load(Store(tmp_path))
    assert len(loaded) == count
    assert loaded.of([count - 1, count]) == [digest(count - 1) if count else None, None]
    assert len(Digests.load(Store(tmp_path / "other"))) == 0
