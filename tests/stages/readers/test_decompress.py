"""The stream forgets what is consumed: members, and the input it has searched for one."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import pytest

from stages.readers import decompress, members
from stages.readers.decompress import OUTPUT_BYTES, Stream
from stages.readers.members import GZIP_MAGIC, SLICE_BYTES

ONE = gzip.compress(b"a", mtime=0)


def consumed(stream: Stream, step: int) -> int:
    total = 0
    while stream.ensure(1):
        count = min(step, len(stream.data) - stream.pos)
        stream.skip(count)
        total += count
    return total


@pytest.mark.parametrize("step", [1, 1_000])
def test_members_are_forgotten_with_what_they_held(step: int) -> None:
    stream = Stream(io.BytesIO(ONE * 50_000), "gzip")
    total = most = 0
    while stream.ensure(step):
        stream.skip(step)
        total += step
        most = max(most, len(stream.members_within(0, 10**9)))
    assert total == 50_000
    assert most <= step + 1


def test_members_are_known_until_they_are_consumed() -> None:
    stream = Stream(io.BytesIO(ONE * 9), "gzip")
    assert stream.ensure(9)
    assert stream.place() == (0, True)
    assert stream.members_within(2, 5) == [3, 4]
    stream.skip(4)
    assert stream.place() == (4 * len(ONE), True)
    assert stream.members_within(0, 7) == [4, 5, 6]


def test_data_is_let_go_of_as_it_is_consumed() -> None:
    stream = Stream(io.BytesIO(gzip.compress(bytes(20 << 20))), "gzip")
    total = 0
    while stream.ensure(1):
        count = len(stream.data) - stream.pos
        stream.skip(count)
        total += count
        assert len(stream.data) <= 4 * OUTPUT_BYTES
    assert total == 20 << 20


DAMAGED = gzip.compress(bytes(range(200)), mtime=0)[:-8] + b"\xff" * 8


def test_a_search_among_false_starts_finds_the_true_one() -> None:
    stream = Stream(io.BytesIO(DAMAGED + GZIP_MAGIC * 30_000 + ONE), "gzip", b"A")
    assert not stream.ensure(10_000)
    assert stream.resume()
    assert stream.ensure(1)
    assert stream.place() == (len(DAMAGED) + 3 * 30_000, True)


def test_a_search_among_false_starts_holds_no_more_than_some_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a start costs to try is not of interest here, and slow while memory is traced.
    monkeypatch.setattr(members, "_starts_with", lambda *_: False)
    stream = Stream(io.BytesIO(DAMAGED + GZIP_MAGIC * 250_000), "gzip", b"A")
    assert not stream.ensure(10_000)
    tracemalloc.start()
    assert not stream.resume()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (decompress.KEPT_SLICES + 6) * SLICE_BYTES


def test_a_member_that_begins_in_what_a_damaged_one_swallowed_is_found() -> None:
    # Stored blocks: the damaged member's length takes in all of the next one.
    cut = gzip.compress(bytes(range(256)) * 100, 0)[:9_000]
    whole = gzip.compress(b"after the cut", mtime=0)
    stream = Stream(io.BytesIO(cut + whole), "gzip", b"AFTER")
    assert not stream.ensure(10**6)
    assert stream.damage is not None
    assert stream.resume()
    assert stream.ensure(13)
    assert bytes(stream.data) == b"after the cut"
    assert consumed(stream, 5) == 13
