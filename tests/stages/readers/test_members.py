"""Members are found where they begin, and the input is handed on as it was, however it is chunked."""

from __future__ import annotations

import gzip
import io
import itertools
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.readers.members import GZIP_MAGIC, PROBE_BYTES, ZSTD_MAGIC, Part, before_member

PACK = {"gzip": lambda data: gzip.compress(data, mtime=0), "zstd": zstandard.compress}


def named(name: str) -> bytes:
    """A member whose header is as long as its name."""
    sink = io.BytesIO()
    with gzip.GzipFile(name, "wb", fileobj=sink, mtime=0) as file:
        file.write(b"probe")
    return sink.getvalue()


NAMED = (named("n" * 3_000), named("n" * PROBE_BYTES))
PIECES = st.one_of(
    st.sampled_from([b"", b"probe ", b"Probe and more of it" * 50, b"another" * 50]).map(lambda data: (True, data)),
    st.binary(max_size=300).map(lambda data: (False, data)),
    st.sampled_from([GZIP_MAGIC, ZSTD_MAGIC, GZIP_MAGIC[:2], ZSTD_MAGIC[:3], GZIP_MAGIC * 40, *NAMED]).map(
        lambda d: (False, d)
    ),
)


class Chunked:
    """An input that gives its bytes in reads of the given sizes, again and again."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._inner, self._sizes = io.BytesIO(data), itertools.cycle(sizes)

    def read(self, count: int = 1 << 20, /) -> bytes:
        return self._inner.read(min(count, next(self._sizes)))


def joined(pieces: list[tuple[bool, bytes]], compression: str) -> bytes:
    return b"".join(PACK[compression](data) if packed else data for packed, data in pieces)


def first_member(data: bytes, start: int, compression: str) -> int | None:
    """The slow definition: try every place."""
    for at in range(start, len(data)):
        if data.startswith(GZIP_MAGIC if compression == "gzip" else ZSTD_MAGIC, at):
            found = until_error(data[at : at + PROBE_BYTES], compression)
            if found[:5].upper() == b"PROBE":
                return at
    return None


def until_error(data: bytes, compression: str) -> bytes:
    """What a member holds as far as it can be decoded; all or nothing of the first 512 bytes for zstd."""
    if compression == "zstd":
        try:
            return zstandard.ZstdDecompressor().decompressobj().decompress(data[:512])
        except zstandard.ZstdError:
            return b""
    decoder, found = zlib.decompressobj(31), b""
    for at in range(len(data)):
        try:
            found += decoder.decompress(data[at : at + 1])
        except zlib.error:
            break
    return found


@settings(max_examples=80, deadline=None)
@given(
    st.lists(PIECES, max_size=8),
    st.lists(st.integers(1, 3_000), min_size=1, max_size=3),
    st.integers(0, 5),
    st.sampled_from(["gzip", "zstd"]),
)
def test_the_first_member_with_the_probe_is_found(
    pieces: list[tuple[bool, bytes]], sizes: list[int], ahead: int, compression: str
) -> None:
    data = joined(pieces, compression)
    passed, search = 0, before_member(data[:ahead], Chunked(data[ahead:], sizes).read, compression, b"PROBE")
    while True:
        try:
            stretch = next(search)
        except StopIteration as found:
            rest: bytes = found.value
            break
        assert stretch
        assert data[passed:].startswith(stretch)
        passed += len(stretch)
    expected = first_member(data, 0, compression)
    assert passed == (len(data) if expected is None else expected)
    assert data[passed:].startswith(rest)
    assert bool(rest) == (expected is not None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(PIECES, min_size=1, max_size=8),
    st.lists(st.integers(1, 3_000), min_size=1, max_size=3),
    st.lists(st.integers(1, 3_000), min_size=1, max_size=3),
    st.integers(0, 1 << 30),
)
def test_a_part_hands_on_every_byte_and_knows_the_next_start_before_it_comes(
    pieces: list[tuple[bool, bytes]], sizes: list[int], reads: list[int], place: int
) -> None:
    data = joined(pieces, "gzip") + b"some bytes"
    end = 1 + place % len(data)
    part, taken = Part(Chunked(data, sizes), 0, end, "gzip", b"PROBE"), b""
    expected = first_member(data, end, "gzip")
    for count in itertools.cycle(reads):
        block = part.read(count)
        if not block:
            break
        taken += block
        assert part.next_start in (None, expected)
        assert part.next_start == expected or expected is None or len(taken) <= expected
    assert taken == data


CONTENTS = st.binary(max_size=400) | st.just(b"ab" * 9_000)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(CONTENTS, st.sampled_from([0, 1, 6, 9])), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
    st.integers(0, 1 << 16),
)
def test_the_quick_decoder_is_the_same_at_every_damage(
    members: list[tuple[bytes, int]], damage: list[tuple[int, int]], cut: int
) -> None:
    quick = pytest.importorskip("zlib_ng.zlib_ng")
    data = bytearray(b"".join(gzip.compress(content, level, mtime=0) for content, level in members))
    for at, byte in damage:
        data[at % len(data)] = byte
    data = data[: max(1, cut % (2 * len(data)))]

    def decoded(library: Any) -> list[object]:
        """Return what comes out of each byte, and the error."""
        out: list[object] = []
        member = library.decompressobj(31)
        for at in range(0, len(data), 64):
            before = member.copy()
            try:
                out.append(member.decompress(bytes(data[at : at + 64]), 1_000))
                out += [member.eof, member.unused_data, member.unconsumed_tail]
            except library.error as error:
                out.append(str(error))
                for place in range(at, min(at + 64, len(data))):
                    try:
                        out.append(before.decompress(bytes(data[place : place + 1])))
                    except library.error:
                        return out
        return out

    assert decoded(quick) == decoded(zlib)
