"""HTTP bodies: every member and frame of a coding, in work linear in the body, within bounds."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.readers.http import BodyError, Response, decode_body, gunzip, unzstd

LIMIT = 1 << 20
EMPTY = gzip.compress(b"", mtime=0)
SKIPPED = b"\x51\x2a\x4d\x18\x05\0\0\0 skip"


def decoded(coding: str, body: bytes, limit: int = LIMIT) -> bytes:
    return decode_body(Response(200, {"content-encoding": coding}, body), limit)


class Counted:
    """A decoder that adds up the bytes it is fed and the bytes it hands back, which it must copy."""

    fed = copied = 0
    new = staticmethod(zlib.decompressobj)

    def __init__(self, wbits: int) -> None:
        self._inner = self.new(wbits)

    def decompress(self, piece: bytes, limit: int) -> bytes:
        Counted.fed += len(piece)
        return self._inner.decompress(piece, limit)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        Counted.copied += len(value) if isinstance(value, bytes) else 0
        return value


@pytest.mark.parametrize("member", [EMPTY, gzip.compress(b"a"), gzip.compress(bytes(range(256)) * 3)])
def test_gzip_members_are_decoded_in_work_linear_in_the_body(member: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted.fed = Counted.copied = 0
    count = 500_000 // len(member)
    expected = gzip.decompress(member) * count
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    assert gunzip(member * count, len(expected)) == expected
    # A member is fed at most 256 bytes beyond its own, or twice its own.
    assert Counted.fed <= count * (256 + 2 * len(member))
    assert Counted.copied <= count * (256 + 2 * len(member))


def test_a_body_of_four_megabytes_of_empty_members_is_done_with() -> None:
    assert gunzip(EMPTY * (4_000_000 // len(EMPTY)), LIMIT) == b""


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=2_000) | st.integers(0, 90_000).map(bytes), min_size=1, max_size=6))
def test_every_member_and_frame_is_read(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert decoded("gzip", b"".join(map(gzip.compress, parts))) == whole
    assert decoded("zstd", SKIPPED.join(map(zstandard.compress, parts))) == whole
    assert decoded("zstd", SKIPPED + b"".join(map(zstandard.compress, parts)) + SKIPPED) == whole


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_what_is_too_large_damaged_cut_or_followed_by_something_else(coding: str, pack: Any) -> None:
    for bomb in (pack(bytes(40 * LIMIT)), pack(bytes(LIMIT // 2)) * 3, pack(b"a" * 100) * (LIMIT // 50)):
        with pytest.raises(BodyError) as caught:
            decoded(coding, bomb)
        assert LIMIT < caught.value.bytes <= LIMIT + (16 << 20)
        assert not caught.value.failure
    assert decoded(coding, pack(bytes(LIMIT // 2)) * 2) == bytes(LIMIT)
    one, two = pack(b"one" * 100), pack(bytes(range(256)) * 9)
    assert decoded(coding, one + b"\r\n trailing bytes") == b"one" * 100
    assert decoded(coding, one + two[: len(two) - 60]).startswith(b"one" * 100)
    with pytest.raises(BodyError) as caught:
        decoded(coding, one + two[:9] + b"\xff" * (len(two) - 9))
    assert caught.value.failure == "decompression"


def test_unzstd_holds_no_more_than_one_feeding_beyond_its_limit() -> None:
    bomb = zstandard.compress(bytes(200 << 20), 19)
    assert LIMIT < len(unzstd(bomb, LIMIT)) <= LIMIT + (16 << 20)
