from __future__ import annotations

import io
import os
import threading
import uuid
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.planning.probe import PROBE_BYTES, Glance, glance, probe_checksum, probe_of, span_digest, spread
from shards.store import Store


@pytest.mark.parametrize("size", [0, 1, PROBE_BYTES, 3 * PROBE_BYTES, 3 * PROBE_BYTES + 1, 10 * PROBE_BYTES])
def test_a_probe_sees_size_first_middle_and_last(tmp_path: Path, size: int) -> None:
    data = bytearray(os.urandom(size))
    path = tmp_path / "a"
    path.write_bytes(data)
    before = probe_checksum(str(path), size)
    assert len(before) == 32
    assert probe_of(io.BytesIO(data), size) == before
    assert probe_of(io.BytesIO(data + b"x"), size + 1) != before
    for at in (0, size // 2, size - 1) if size else ():
        data[at] ^= 1
        assert probe_of(io.BytesIO(data), size) != before
        data[at] ^= 1


def test_a_probe_does_not_depend_on_how_reads_are_chunked() -> None:
    class Slow(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            return super().read(min(count or 0, 1_000))

    data = os.urandom(500_000)
    assert probe_of(Slow(data), len(data)) == probe_of(io.BytesIO(data), len(data))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), min_size=2, max_size=2))
def test_a_digest_is_of_the_bytes_of_its_span(tmp_path: Path, data: bytes, cuts: list[int]) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    begin, end = sorted(min(cut, len(data)) for cut in cuts)
    assert span_digest(str(path), begin, end) == xxhash.xxh3_128_hexdigest(data[begin:end])


def test_a_glance_tells_a_write_even_where_the_time_is_set_back(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    before = glance(str(path))
    assert before.size == 3
    assert not before.proves_nothing
    assert glance(str(path)) == before
    os.utime(path, ns=(0, before.mtime_ns))
    assert glance(str(path)).mtime_ns == before.mtime_ns
    path.unlink()
    path.write_bytes(b"abc")
    os.utime(path, ns=(0, before.mtime_ns))
    assert glance(str(path)) != before


def test_a_glance_reaches_other_file_systems() -> None:
    store = Store(f"memory://headrace-{uuid.uuid4().hex}")
    store.write_bytes("a/b", b"xyz")
    assert glance(f"{store.root}/a/b").size == 3
    for nothing in ("a/c", "a"):
        with pytest.raises(FileNotFoundError):
            glance(f"{store.root}/{nothing}")
    assert Glance(3).proves_nothing


@given(st.integers(0, 40), st.integers(1, 7))
def test_spread_work_comes_back_in_order(count: int, chunk: int) -> None:
    items = list(range(count))
    parts = list(spread(lambda part: [2 * item for item in part], items, chunk))
    assert [item for part in parts for item in part] == [2 * item for item in items]
    assert all(len(part) == chunk for part in parts[:-1])


def test_a_bounded_number_of_chunks_is_under_way() -> None:
    begun: list[int] = []

    def work(part: range) -> int:
        begun.append(part[0])
        return part[0]

    # Items that are made when they are asked for: a million of them are never held as tasks.
    stream = spread(work, range(10_000), chunk=1)
    assert next(stream) == 0
    assert len(begun) <= 32
    stream.close()
    assert threading.active_count() < 50


def test_an_error_in_spread_work_is_raised() -> None:
    def work(part: range) -> int:
        if 700 in part:
            raise PermissionError("no")
        return 0

    with pytest.raises(PermissionError):
        list(spread(work, range(1_000), chunk=10))
