from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.marker import COLUMNS, Marker, from_bytes, markers_in, small_table, to_bytes
from shards.store import FileEntry

COUNTS = pa.schema([("reason", pa.string()), ("rows", pa.int64())])
DEEP = pa.schema(
    [
        ("key", pa.binary(2)),
        ("score", pa.float64()),
        ("flag", pa.bool_()),
        ("bins", pa.list_(pa.int32())),
        ("inner", pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))])),
    ]
)

FLOATS = st.none() | st.floats(allow_nan=False, width=64)
COUNT_ROWS = st.lists(
    st.fixed_dictionaries({"reason": st.none() | st.text("aé"), "rows": st.none() | st.integers(0, 1 << 62)}),
    max_size=4,
)
DEEP_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(min_size=2, max_size=2),
            "score": FLOATS,
            "flag": st.none() | st.booleans(),
            "bins": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
            "inner": st.none()
            | st.fixed_dictionaries({"a": st.none() | st.text("b"), "b": st.none() | st.lists(FLOATS, max_size=2)}),
        }
    ),
    max_size=4,
)
FILES = st.dictionaries(
    st.text(string.ascii_letters + "/", min_size=1, max_size=4),
    st.builds(
        FileEntry, st.text("ab/.", max_size=4), st.text("0f", max_size=4), st.integers(0, 1 << 62), st.integers(0, 9)
    ),
    max_size=3,
)
STATISTICS = st.dictionaries(st.text("aü", max_size=2), st.none() | st.integers() | st.lists(st.text("b")), max_size=3)


# Of one pass: all have the same small tables, as one version of a pass writes them.
MARKERS = st.lists(
    st.builds(
        lambda unit, files, said, counts, deep: Marker(
            unit,
            files,
            said,
            {"counts": pa.Table.from_pylist(counts, COUNTS), "deep": pa.Table.from_pylist(deep, DEEP)},
        ),
        st.text("ab-.", min_size=1, max_size=4),
        FILES,
        STATISTICS,
        COUNT_ROWS,
        DEEP_ROWS,
    ),
    min_size=1,
    max_size=6,
)


def folded(given_: Sequence[Marker]) -> pa.Table:
    return pa.concat_tables([marker.to_table() for marker in given_])


def plain(marker: Marker) -> tuple[Any, ...]:
    return marker.unit, dict(marker.files), dict(marker.statistics)


@settings(deadline=None, max_examples=40)
@given(MARKERS)
def test_what_is_marked_comes_back(given_: list[Marker]) -> None:
    table = from_bytes(to_bytes(folded(given_)))
    assert [plain(marker) for marker in markers_in(table)] == [plain(marker) for marker in given_]
    for name, schema in (("counts", COUNTS), ("deep", DEEP)):
        rows = [{"unit": one.unit, **row} for one in given_ for row in one.tables[name].to_pylist()]
        found = small_table(table, name)
        assert found.to_pylist() == rows
        assert found.schema.remove_metadata() == pa.schema([("unit", pa.string()), *schema])


@settings(deadline=None, max_examples=40)
@given(MARKERS, st.data())
def test_equal_rows_give_equal_bytes_wherever_they_lay(given_: list[Marker], data: st.DataObject) -> None:
    """Rows of a part read again, slices of one, and new markers: in a repaired manifest they come together."""
    expected = to_bytes(folded(given_))
    whole = from_bytes(expected)
    rows = []
    for at, marker in enumerate(given_):
        made = data.draw(st.sampled_from(["slice", "new", "read", "of fewer"]))
        if made == "slice":
            rows.append(whole.slice(at, 1))
        elif made == "new":
            rows.append(marker.to_table())
        elif made == "read":
            rows.append(from_bytes(to_bytes(marker.to_table())))
        else:
            rows.append(from_bytes(to_bytes(whole.slice(at))).slice(0, 1))
    assert to_bytes(pa.concat_tables(rows)) == expected


@settings(deadline=None, max_examples=40)
@given(MARKERS, st.data())
def test_a_part_cut_anywhere_holds_the_same_small_tables(given_: list[Marker], data: st.DataObject) -> None:
    whole, cut = folded(given_), data.draw(st.integers(0, len(given_)))
    for name in ("counts", "deep"):
        parts = [small_table(whole.slice(0, cut), name), small_table(whole.slice(cut), name)]
        assert pa.concat_tables(parts).to_pylist() == small_table(whole, name).to_pylist()


def test_the_order_of_files_tables_and_statistics_is_no_part_of_the_bytes() -> None:
    entries = {kind: FileEntry(kind, "0", 1, 2) for kind in ("b", "a")}
    tables = {name: pa.Table.from_pylist([], COUNTS) for name in ("z", "y")}
    one = Marker("u", entries, {"b": 1, "a": 2}, tables)
    other = Marker(
        "u",
        {kind: entries[kind] for kind in ("a", "b")},
        {"a": 2, "b": 1},
        {name: tables[name] for name in ("y", "z")},
    )
    assert to_bytes(one.to_table()) == to_bytes(other.to_table())
    assert one.to_table().column_names == [*COLUMNS.names, "y", "z"]


def test_a_marker_without_files_and_with_empty_tables() -> None:
    marker = Marker("u", {}, {}, {"counts": pa.Table.from_pylist([], COUNTS)})
    table = from_bytes(to_bytes(marker.to_table()))
    assert [plain(found) for found in markers_in(table)] == [("u", {}, {})]
    assert small_table(table, "counts").num_rows == 0
    assert small_table(table.slice(0, 0), "counts").column_names == ["unit", "reason", "rows"]


def test_a_statistic_without_a_canonical_form_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        Marker("u", {}, {"share": float("nan")}).to_table()


@pytest.mark.parametrize("content", [b"", b"{}", b"ARROW1", b"ARROW1\0\0" + b"\0" * 64])
def test_bytes_that_are_no_table_are_refused(content: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_bytes(content)
