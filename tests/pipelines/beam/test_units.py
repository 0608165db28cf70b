from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from hypothesis import given
from hypothesis import strategies as st

from pipelines.beam.coder import RecordBatchCoder
from pipelines.beam.units import UnitSink, UnitWriter, numbered
from shards.manifest import PassFolder
from shards.marker import Marker, markers_in
from shards.store import Store

EMPTY = pa.RecordBatch.from_pydict({"n": pa.array([], pa.int64())})


def batches(numbers: list[int]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"n": pa.array([number], pa.int64())}) for number in numbers]


class Sink(UnitSink):
    """Collects the numbers of a unit, and publishes them as one file."""

    def __init__(self, folder: PassFolder, unit: str, log: list[str]) -> None:
        self._folder, self._unit, self._log = folder, unit, log
        self._numbers: list[int] = []
        log.append(f"open {unit}")

    def write(self, batch: pa.RecordBatch) -> None:
        if -1 in batch.column("n").to_pylist():
            raise OSError("disk full")
        self._numbers += batch.column("n").to_pylist()

    def commit(self, closing: Any) -> None:
        store = self._folder.store
        with store.scratch() as scratch:
            (scratch / "x.txt").write_text(str(self._numbers))
            entry = store.publish(scratch / "x.txt", "pass/files", self._unit, len(self._numbers))
        self._folder.commit(Marker(self._unit, {"file": entry}))
        self._log.append(f"commit {self._unit}")

    def abandon(self) -> None:
        self._log.append(f"abandon {self._unit}")


class Writer(UnitWriter):
    def __init__(self, root: str) -> None:
        super().__init__()
        self._root, self.log = root, list[str]()

    def open_sink(self, unit: str) -> UnitSink:
        return Sink(PassFolder(Store(self._root), "pass", "d"), unit, self.log)

    def feed(self, *given: pa.RecordBatch) -> None:
        for batch in given:
            assert list(self.process(batch)) == []


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    made = Writer(str(tmp_path))
    made.start_bundle()
    return made


def committed(root: Path, units: list[str]) -> list[str]:
    survey = PassFolder(Store(root), "pass", "d").survey()
    return [unit for unit in units if unit in survey.rows]


def content(root: Path, unit: str) -> str:
    folder = PassFolder(Store(root), "pass", "d")
    (marker,) = markers_in(folder.survey().row(unit))
    return folder.store.read_bytes(marker.files["file"].path).decode()


@given(st.lists(st.integers(0, 9), max_size=5))
def test_the_thread_counts_up_and_ends_once(numbers: list[int]) -> None:
    found = list(numbered("u", batches(numbers), EMPTY))
    metadata = [batch.schema.metadata for batch in found]
    assert [m[b"headrace.unit"] for m in metadata] == [b"u"] * max(1, len(numbers))
    assert [m[b"headrace.seq"] for m in metadata] == [str(i).encode() for i in range(len(found))]
    assert [m[b"headrace.last"] for m in metadata] == [b"0"] * (len(found) - 1) + [b"1"]
    assert [n for batch in found for n in batch.column("n").to_pylist()] == numbers


def test_the_thread_is_lazy() -> None:
    taken: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches([1, 2, 3])):
            taken.append(number)
            yield batch

    first = next(numbered("u", source(), EMPTY))
    assert first.column("n").to_pylist() == [1]
    assert taken == [0, 1]


def test_the_thread_survives_the_wire() -> None:
    coder = RecordBatchCoder()
    for batch in numbered("00000-äb", batches([1, 2]), EMPTY):
        assert coder.decode(coder.encode(batch)).schema.metadata == batch.schema.metadata


def test_several_units_in_one_bundle_are_each_published(writer: Writer, tmp_path: Path) -> None:
    for unit, numbers in (("a", [1, 2]), ("b", []), ("c", [3])):
        writer.feed(*numbered(unit, batches(numbers), EMPTY))
    writer.finish_bundle()
    assert [content(tmp_path, unit) for unit in "abc"] == ["[1, 2]", "[]", "[3]"]


TORN = {
    "a batch is missing": ["a0", "a2"],
    "the first batch is missing": ["a1", "a2"],
    "a batch comes twice": ["a0", "a0", "a1", "a2"],
    "batches are out of order": ["a1", "a0", "a2"],
    "another unit comes between": ["a0", "b0", "a1", "a2"],
    "the rest of another unit": ["a0", "b1", "b2"],
    "the end is missing": ["a0", "a1"],
}


@pytest.mark.parametrize("order", TORN.values(), ids=TORN)
def test_a_torn_unit_fails_loudly_and_publishes_nothing(writer: Writer, tmp_path: Path, order: list[str]) -> None:
    given_ = {
        f"{unit}{seq}": batch for unit in "ab" for seq, batch in enumerate(numbered(unit, batches([1, 2, 3]), EMPTY))
    }

    def bundle() -> None:
        writer.feed(*(given_[name] for name in order))
        writer.finish_bundle()

    with pytest.raises(RuntimeError, match="nothing of it was published"):
        bundle()
    assert committed(tmp_path, ["a", "b"]) == []
    assert Store(tmp_path).list(".") == []
    assert writer.log.count("open a") == writer.log.count("abandon a")


def test_a_failed_bundle_is_forgotten_by_the_next(writer: Writer, tmp_path: Path) -> None:
    first, second = numbered("a", batches([1, 2]), EMPTY)
    writer.feed(first)
    writer.start_bundle()
    with pytest.raises(RuntimeError, match="batch 1 of a came where batch 0 of a new unit was due"):
        writer.feed(second)
    writer.start_bundle()
    writer.feed(first, second)
    writer.finish_bundle()
    assert content(tmp_path, "a") == "[1, 2]"


def test_a_sink_that_fails_leaves_nothing(writer: Writer, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk full"):
        writer.feed(*numbered("a", batches([1, -1, 2]), EMPTY))
    writer.start_bundle()
    writer.finish_bundle()
    assert committed(tmp_path, ["a"]) == []
    assert writer.log == ["open a", "abandon a"]


def test_a_replayed_unit_converges(tmp_path: Path) -> None:
    for _ in range(2):
        writer = Writer(str(tmp_path))
        for _ in range(2):
            writer.start_bundle()
            writer.feed(*numbered("a", batches([1, 2]), EMPTY))
            writer.finish_bundle()
    assert content(tmp_path, "a") == "[1, 2]"
    assert len(Store(tmp_path).list("pass/files")) == 1


class _Emit(beam.DoFn):
    def process(self, unit: str) -> Iterator[pa.RecordBatch]:
        yield from numbered(unit, batches([ord(unit), 7, 7]), EMPTY)


def test_beam_keeps_units_whole(tmp_path: Path) -> None:
    units = ["a", "b", "c", "a"]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        emitted = (
            pipeline | beam.Create(units) | beam.Reshuffle() | beam.ParDo(_Emit()).with_output_types(pa.RecordBatch)
        )
        _ = emitted | "write" >> beam.ParDo(Writer(str(tmp_path)))
    assert [content(tmp_path, unit) for unit in "abc"] == [f"[{ord(unit)}, 7, 7]" for unit in "abc"]
    assert len(Store(tmp_path).list("pass/files")) == 3


def test_every_order_of_whole_units_is_fine(tmp_path: Path) -> None:
    for number, order in enumerate(itertools.permutations("abc")):
        writer = Writer(str(tmp_path / str(number)))
        writer.start_bundle()
        for unit in order:
            writer.feed(*numbered(unit, batches([1]), EMPTY))
        writer.finish_bundle()
        assert committed(tmp_path / str(number), ["a", "b", "c"]) == ["a", "b", "c"]
