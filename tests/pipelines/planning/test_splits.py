from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.planning.sources import SOURCES, SourceTable, checksums_as_array
from pipelines.planning.splits import Splits, make_splits
from pipelines.recipe import Recipe, parse_recipe


def recipe(split_bytes: int = 10, **settings: Any) -> Recipe:
    return parse_recipe({"split_bytes": split_bytes, "sources": [{"glob": "*", **settings}]}, "t")


def sources(sizes: list[int], folder: str = "") -> SourceTable:
    columns: dict[str, Any] = {
        "index": range(len(sizes)),
        "path": [f"{folder}{number}" for number in range(len(sizes))],
        "begin": [0] * len(sizes),
        "end": sizes,
        "size": sizes,
        "checksum": checksums_as_array([f"{number:032x}" for number in range(len(sizes))]),
        "cut_as": pa.nulls(len(sizes), pa.string()),
    }
    return SourceTable(pa.table(columns, schema=SOURCES))


def splits(of: SourceTable, active: list[int] | None = None, by: Recipe | None = None) -> Splits:
    rows = np.array(range(len(of)) if active is None else active, np.int32)
    return make_splits(of, rows, np.zeros(len(rows), np.int32), by or recipe())


SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=30)


@given(SIZES, st.data())
def test_leaving_sources_out_changes_their_own_splits_alone(sizes: list[int], data: st.DataObject) -> None:
    every = splits(sources(sizes))
    active = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)))
    some = splits(sources(sizes), active)
    assert [source.index for split in some for source in split.sources] == active
    whole = {split.name: {source.index for source in split.sources} for split in every}
    for split in some:
        indices = {source.index for source in split.sources}
        if indices in whole.values():
            assert whole[split.name] == indices
        else:
            assert split.name not in whole
    untouched = {name for name, indices in whole.items() if indices <= set(active)}
    assert untouched <= set(some.names)


@given(SIZES)
def test_columns_and_objects_say_the_same(sizes: list[int]) -> None:
    made = splits(sources(sizes))
    assert [made[number] for number in range(len(made))] == list(made) == made[:]
    assert made[-1] == list(made)[-1]
    assert made.names == [split.name for split in made]
    assert made.sizes == [split.size for split in made]
    assert made.of_rows.tolist() == [number for number, split in enumerate(made) for _ in split.sources]
    with pytest.raises(IndexError):
        made[len(made)]


def test_a_split_holds_a_bounded_number_of_sources() -> None:
    made = splits(sources([0] * 9_000))
    assert [len(split.sources) for split in made] == [4_096, 4_096, 808]


@pytest.mark.parametrize("change", [{"format": "warc"}, {"url_key": "u"}, {"date_key": "d"}])
def test_what_a_reader_is_told_names_splits_anew(change: dict[str, Any]) -> None:
    assert not set(splits(sources([1, 20]), by=recipe(**change)).names) & set(splits(sources([1, 20])).names)


def test_the_folder_of_a_file_is_no_part_of_a_name() -> None:
    assert splits(sources([1, 20], "s3://bucket/x/")).names == splits(sources([1, 20], "../y/")).names
