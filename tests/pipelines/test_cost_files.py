from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import cost_files
from pipelines.cost_files import COUNTS, Cost, UnitCosts
from shards.store import Store

UNITS = ["a", "b", "c", "all"]
costs = st.builds(Cost, *(st.integers(0, 2**40) for _ in COUNTS))
records = st.builds(
    UnitCosts,
    unit=st.sampled_from(UNITS),
    digest=st.just("now"),
    is_shared=st.booleans(),
    peak_bytes=st.integers(0, 2**40),
    is_peak_of_unit=st.booleans(),
    stages=st.dictionaries(st.sampled_from(["read", "mark", "write"]), costs, min_size=1),
)


def record(unit: str, cpu_ns: int = 1, **changes: Any) -> UnitCosts:
    return UnitCosts(unit, **{"digest": "now", "stages": {"work": Cost(cpu_ns)}, **changes})


def rows(store: Store, name: str = "pass") -> list[dict[str, Any]]:
    table = cost_files.read(store).get(name, cost_files.SCHEMA.empty_table())
    return sorted(table.to_pylist(), key=lambda row: (row["is_shared"], row["unit"], row["position"]))


def cpu(store: Store) -> dict[str, int]:
    return {row["unit"]: row["cpu_ns"] for row in rows(store)}


@settings(deadline=None, max_examples=20)
@given(st.lists(st.none() | records, max_size=12))
def test_the_last_record_of_a_unit_counts_wherever_it_was_folded(
    tmp_path_factory: pytest.TempPathFactory, events: list[UnitCosts | None]
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    last: dict[tuple[bool, str], UnitCosts] = {}
    for event in events:
        if event is None:
            cost_files.fold(store, "pass", "now", UNITS)
            assert store.list("unfinished") == []
        else:
            cost_files.write(store, "pass", event)
            last[event.is_shared, event.unit] = event
    expected = [
        {"unit": unit, "is_shared": is_shared, "position": position, "stage": stage}
        | vars(cost)
        | {"peak_bytes": one.peak_bytes, "is_peak_of_unit": one.is_peak_of_unit}
        for (is_shared, unit), one in sorted(last.items())
        for position, (stage, cost) in enumerate(one.stages.items())
    ]
    assert rows(store) == expected


def test_passes_are_kept_apart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, spent in (("judge", 1), ("judge_again", 2)):
        cost_files.write(store, name, record("a", spent))
    cost_files.fold(store, "judge", "now", ["a"])
    assert {name: table.column("cpu_ns").to_pylist() for name, table in cost_files.read(store).items()} == {
        "judge": [1], "judge_again": [2],
    }  # fmt: skip


def test_a_fold_leaves_out_what_the_pass_does_not_have_any_more(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for one in (record("a"), record("gone"), record("x", is_shared=True), record("b", digest="before")):
        cost_files.write(store, "pass", one)
    cost_files.fold(store, "pass", "now", ["a", "b"])
    assert cpu(store) == {"a": 1, "x": 1}
    cost_files.write(store, "pass", record("b", 2))
    cost_files.fold(store, "pass", "now", ["b"])
    assert cpu(store) == {"b": 2, "x": 1}
    # Before a pass of another digest does anything, all that is there is of files that it replaces.
    cost_files.fold(store, "pass", "then", ["b"])
    assert cpu(store) == {}


def test_a_pass_without_records_gets_no_file(tmp_path: Path) -> None:
    cost_files.fold(Store(tmp_path), "pass", "now", ["a"])
    assert list(tmp_path.iterdir()) == []


def test_a_fold_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for unit in ("a", "b"):
        cost_files.write(store, "pass", record(unit))
    before = rows(store)
    with patch.object(Store, "delete_folder", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        cost_files.fold(store, "pass", "now", ["a", "b"])
    assert len([*store.list("costs"), *store.list("unfinished")]) == 3
    assert rows(store) == before
    cost_files.fold(store, "pass", "now", ["a", "b"])
    assert store.list(".") == ["costs/pass/folded.arrow"]
    assert rows(store) == before


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_a_damaged_record_is_left_out_and_nothing_fails(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("store")
    store = Store(root)
    for unit in ("a", "b"):
        cost_files.write(store, "pass", record(unit))
    path = root / "unfinished/pass/costs/b.json"
    if data.draw(st.booleans()):
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(bytes(content))
    else:
        value = json.loads(path.read_text())
        place = data.draw(st.sampled_from([value, value["stages"][0]]))
        name = data.draw(st.sampled_from(sorted(place)))
        place[name] = data.draw(st.sampled_from([None, [], {}, "\ud800", 2**70, 1.5]))
        path.write_text(json.dumps(value))
    assert cpu(store)["a"] == 1
    cost_files.fold(store, "pass", "now", ["a", "b"])
    assert cpu(store)["a"] == 1
    assert store.list(".") == ["costs/pass/folded.arrow"]


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"\0" * 4_000])
def test_a_damaged_folded_file_is_begun_again(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path)
    store.write_bytes("costs/pass/folded.arrow", content)
    assert rows(store) == []
    cost_files.write(store, "pass", record("a"))
    cost_files.fold(store, "pass", "now", ["a"])
    assert cpu(store) == {"a": 1}


def test_a_folded_file_with_other_columns_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sink = pa.BufferOutputStream()
    table = pa.table({"unit": ["a"]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    store.write_bytes("costs/pass/folded.arrow", sink.getvalue().to_pybytes())
    assert rows(store) == []


def test_a_store_that_fails_stops_no_pass(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with patch.object(Store, "list", side_effect=RuntimeError("a handler's own kind of error")):
        cost_files.fold(Store(tmp_path), "pass", "now", ["a"])
    assert "costs of pass pass are not folded: RuntimeError: a handler's own" in caplog.text
