from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.beam import work_list
from pipelines.beam.work_list import PART_UNITS, Output, UndeclaredInputError, Unit, read_part, units_of, write_parts
from pipelines.workspace import Job
from shards.errors import IncompleteError
from shards.store import FileEntry, Store

ENTRY = FileEntry("judge/keys/00000-ab-0123456789abcdef.arrow", "0" * 64, 1 << 40, 9)
# All that a file's name may hold, such as the line separators that are no line feeds.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(["a\u2028b", "\x85", "\x0b\n\r"])
UNITS = st.builds(
    Unit,
    TEXT,
    st.dictionaries(
        st.builds(Output, TEXT, TEXT),
        st.lists(st.builds(FileEntry, TEXT, TEXT, st.integers(0, 1 << 62), st.integers(0, 9)), max_size=2).map(tuple),
        max_size=3,
    ),
    st.none() | st.lists(TEXT) | st.dictionaries(TEXT, st.integers() | st.booleans(), max_size=2),
)


def memory() -> Store:
    MemoryFileSystem.store.clear()
    return Store(f"memory://headrace-{uuid.uuid4().hex}")


def plain(unit: Unit) -> tuple[str, Mapping[Output, Sequence[FileEntry]], Any]:
    return unit.name, list(unit.entries.items()), unit.detail  # type: ignore[return-value]


@settings(deadline=None, max_examples=40)
@given(st.lists(UNITS, max_size=9), st.integers(1, 4), st.integers(1, 500))
def test_units_come_back_in_order_from_parts_of_bounded_size(
    units: list[Unit], part_units: int, part_bytes: int
) -> None:
    store = memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work_list, "PART_UNITS", part_units)
        patch.setattr(work_list, "PART_BYTES", part_bytes)
        paths = write_parts(store, "judge", iter(units))
    read = [list(read_part(store, path)) for path in paths]
    assert [plain(unit) for part in read for unit in part] == [plain(unit) for unit in units]
    assert paths == sorted(paths) == store.list("unfinished/judge/work")
    for path, part in zip(paths, read, strict=True):
        assert 1 <= len(part) <= part_units
        assert len(part) == 1 or store.size(path) <= part_bytes  # type: ignore[operator]


def test_what_a_pass_says_of_a_unit_is_plain_json() -> None:
    unit = Unit("u", {Output("judge", "keys"): (ENTRY,)}, {"ranges": 7})
    assert json.loads(unit.to_json()) == [
        "u",
        [["judge", "keys", [[ENTRY.path, ENTRY.sha256, ENTRY.size, ENTRY.rows]]]],
        {"ranges": 7},
    ]


def test_a_worker_opens_what_its_unit_names_and_nothing_else() -> None:
    keys, cuts = Output("judge", "keys"), Output("decide", "cuts")
    unit = Unit("00000-ab", {keys: (ENTRY, ENTRY), cuts: (ENTRY,)})
    assert list(unit.files(keys)) == [ENTRY, ENTRY]
    assert unit.file(cuts) == ENTRY
    with pytest.raises(ValueError, match="too many values"):
        unit.file(keys)
    for other in (Output("judge", "documents"), Output("decide", "keys")):
        with pytest.raises(UndeclaredInputError, match=f"may not open {other.kind} of {other.of}: it is not declared"):
            unit.file(other)


def test_the_same_units_are_the_same_parts() -> None:
    units = [Unit(f"{number:05d}", {Output("judge", "keys"): (ENTRY,)}) for number in range(2 * PART_UNITS + 88)]
    store = memory()
    paths = write_parts(store, "near_pairs", units)
    assert len(paths) == 3
    assert write_parts(store, "near_pairs", units) == paths
    assert store.list(".") == paths
    assert write_parts(store, "near_pairs", []) == []


@pytest.mark.parametrize("at", [0, 200, -1])
def test_a_flipped_bit_in_a_part_is_found_before_a_unit_of_it_is_done(tmp_path: Path, at: int) -> None:
    store = Store(tmp_path)
    units = [Unit(f"{number:05d}", {Output("judge", "keys"): (ENTRY,)}) for number in range(3)]
    (path,) = write_parts(store, "near_pairs", units)
    data = bytearray((tmp_path / path).read_bytes())
    data[at] ^= 1
    (tmp_path / path).write_bytes(data)
    with pytest.raises(IncompleteError, match=f"{path} is not what was written"):
        next(read_part(store, path))
    assert write_parts(store, "near_pairs", units) == [path]
    assert len(list(read_part(store, path))) == 3


class _Note(beam.DoFn):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, unit: Unit) -> Any:
        (Path(self._folder) / unit.name).write_text(unit.to_json())
        yield from ()


def test_every_unit_reaches_a_worker_with_its_entries(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    job = Job(str(tmp_path / "out"), "key", "judge", "d")
    units = [Unit(f"{number:05d}", {Output("judge", "keys"): (ENTRY,)}, [number]) for number in range(PART_UNITS + 44)]
    parts = write_parts(job.store, "judge", units)
    assert len(parts) == 2
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = units_of(pipeline, job, parts) | beam.ParDo(_Note(str(tmp_path / "seen")))
    assert {path.name: path.read_text() for path in (tmp_path / "seen").iterdir()} == {
        unit.name: unit.to_json() for unit in units
    }
