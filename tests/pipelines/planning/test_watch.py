from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from pipelines.planning.digests import DIGESTS
from pipelines.planning.probe import probe_checksum
from pipelines.planning.sources import PlannedSource
from pipelines.planning.watch import READINGS, Watch, confirm, readings
from shards.errors import UserError
from shards.store import Store


def planned(path: Path | str, span: tuple[int, int] | None = None, index: int = 3) -> PlannedSource:
    size = Path(path).stat().st_size if isinstance(path, Path) else len(Store(path.rpartition("/")[0]).read_bytes("a"))
    begin, end = span or (0, size)
    return PlannedSource(index, str(path), begin, end, size, probe_checksum(str(path), size), 0)


def read(source: PlannedSource) -> dict[str, Any]:
    """Open a source and read all of its span."""
    watch = Watch(source, source.path, "out")
    with watch.open_input(source.path) as file:
        data = file.read()
    return watch.reading(xxhash.xxh3_128_hexdigest(data[source.begin : source.end]))


def confirmed(row: dict[str, Any], source: PlannedSource) -> None:
    confirm(readings([row]), [source], lambda path: path, "out")


@pytest.mark.parametrize("span", [None, (0, 3), (2, 700), (900, 1000)])
def test_a_source_that_another_process_read_is_hashed_by_its_span(tmp_path: Path, span: tuple[int, int] | None) -> None:
    path = tmp_path / "a"
    path.write_bytes(os.urandom(1000))
    source = planned(path, span)
    watch = Watch(source, source.path, "out")
    row = watch.reading(watch.digest())
    assert row["digest"] == xxhash.xxh3_128_hexdigest(path.read_bytes()[source.begin : source.end])
    assert readings([row]).select(DIGESTS.names).schema == DIGESTS
    confirmed(row, source)
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(UserError, match="has changed"):
        Watch(source, source.path, "out").digest()


def replaced(path: Path, data: bytes) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(data)
    os.replace(other, path)


@pytest.mark.parametrize("change", ["longer", "shorter", "first byte", "gone"])
def test_a_source_that_is_not_as_planned_is_not_read(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    source = planned(path)
    if change == "gone":
        path.unlink()
        with pytest.raises(FileNotFoundError):
            read(source)
        return
    path.write_bytes({"longer": b"abcd", "shorter": b"ab", "first byte": b"xbc"}[change])
    with pytest.raises(UserError, match="has changed"):
        read(source)


@pytest.mark.parametrize("change", ["replaced", "edited", "longer", "gone"])
def test_a_source_that_changed_while_it_was_read_is_not_committed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(500_000))
    source = planned(path)
    row = read(source)
    edited = bytearray(500_000)
    # Between the probes.
    edited[100_000] = 1
    before = path.stat()
    if change == "replaced":
        replaced(path, bytes(edited))
    elif change == "edited":
        path.write_bytes(edited)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "longer":
        path.write_bytes(bytes(500_001))
    else:
        path.unlink()
    with pytest.raises(UserError, match="changed while it was read"):
        confirmed(row, source)


def test_a_source_replaced_by_its_like_is_still_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc" * 100)
    source = planned(path, (10, 200))
    row = read(source)
    replaced(path, b"abc" * 100)
    confirmed(row, source)
    os.utime(path, (1, 1))
    confirmed(row, source)
    # What lies outside of the span is another source's.
    replaced(path, b"abc" * 99 + b"abd")
    confirmed(row, source)


def test_a_source_without_times_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"memory://headrace-{uuid.uuid4().hex}"
    Store(root).write_bytes("a", b"abc")
    source = planned(f"{root}/a")
    row = read(source) | {"mtime_ns": -1}
    monkeypatch.setattr("pipelines.planning.probe.Glance.of_info", lambda info: _timeless(info.size))
    confirmed(row, source)
    Store(root).write_bytes("a", b"abd")
    with pytest.raises(UserError, match="changed while it was read"):
        confirmed(row, source)


def _timeless(size: int) -> Any:
    from pipelines.planning.probe import Glance

    return Glance(size)


def test_what_was_not_read_to_its_end_has_no_reading(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    watch = Watch(planned(path), str(path), "out")
    with pytest.raises(AssertionError, match="not read to its end"):
        watch.reading("0" * 32)
    watch.open_input(str(path)).close()
    with pytest.raises(AssertionError, match="not read to its end"):
        watch.reading(None)


def test_readings_of_other_sources_confirm_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with pytest.raises(AssertionError, match="not those of the split"):
        confirm(READINGS.empty_table(), [planned(path)], str, "out")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_reader_gives_the_same_rows_through_a_watch(tmp_path: Path, name: str) -> None:
    import gzip

    import pyarrow.parquet as pq

    from shards.files import open_input
    from stages.readers import Digest
    from stages.readers import read as read_source
    from stages.readers.base import Source

    path = tmp_path / name
    lines = b"".join(b'{"text": "line %d"}\n' % number for number in range(5_000))
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": [f"line {n}" for n in range(5_000)], "other": range(5_000)}), path)
    else:
        path.write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    source = planned(path)
    watch = Watch(source, str(path), "out")
    digest = Digest()
    watched = pa.Table.from_batches(read_source(Source(3, str(path)), watch.open_input, digest))
    assert watched.num_rows == 5_000
    assert watched.equals(pa.Table.from_batches(read_source(Source(3, str(path)), open_input)))
    assert watch.reading(digest.hex)["digest"] == xxhash.xxh3_128_hexdigest(path.read_bytes())
