"""Where in a compressed file a member begins: its first bytes, and what they decode to."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol

import zstandard

from stages.readers.guard import Failed, attempt

_gzip: Any
try:
    # The same bytes and the same errors, at the same bytes of input, in half of the time.
    from zlib_ng import zlib_ng as _gzip
except ImportError:
    _gzip = zlib

DECODING_ERRORS: Final[tuple[type[Exception], ...]] = (zlib.error, _gzip.error, zstandard.ZstdError)
"""What decoders raise at damaged data."""

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

SLICE_BYTES: Final = 32 << 10
"""Input is decoded in slices that begin at multiples of this offset: so damage is found at the same byte every time."""
ZSTD_FEED_BYTES: Final = 512
"""zstd turns 4 bytes into a block of 128 KiB at most, so one feeding gives 16 MiB at most."""
PROBE_BYTES: Final = 4096
"""How much of a member is looked at to say what it begins with."""


class Readable(Protocol):
    """What readers need of an input that they read in sequence."""

    def read(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes, none only at the end."""
        ...


class Seekable(Readable, Protocol):
    """What readers need of an input that they read in leaps."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a place; return it."""
        ...

    def tell(self) -> int:
        """Return the place of the next byte."""
        ...


def magic_of(compression: str) -> bytes:
    """Return the first bytes of every member of ``gzip`` or ``zstd``."""
    return GZIP_MAGIC if compression == "gzip" else ZSTD_MAGIC


def new_member(compression: str) -> Any:
    """Return a fresh decoder of one member."""
    return _gzip.decompressobj(31) if compression == "gzip" else zstandard.ZstdDecompressor().decompressobj()


def before_member(
    window: bytes, more: Callable[[], bytes], compression: str, probe: bytes
) -> Generator[bytes, None, bytes]:
    """Yield the bytes that lie before the next member whose content begins with ``probe``, in stretches.

    What is held never exceeds some ``SLICE_BYTES``, however many places look like a start.

    Args:
        window: the first of the bytes to search.
        more: returns the bytes that follow those it returned before, none only at the end.
        compression: ``gzip`` or ``zstd``.
        probe: upper-case bytes, found in any case.

    Returns:
        Bytes from the start of that member on, as far as they have been read; none if there is no such member.
    """
    magic = magic_of(compression)
    while True:
        at = window.find(magic)
        while at >= 0:
            while len(window) - at < PROBE_BYTES and (block := more()):
                if at:
                    yield window[:at]
                window, at = window[at:] + block, 0
            if _starts_with(compression, window[at : at + PROBE_BYTES], probe):
                if at:
                    yield window[:at]
                return window[at:]
            at = window.find(magic, at + 1)
        done = max(0, len(window) - (len(magic) - 1))
        if done:
            yield window[:done]
        window = window[done:]
        if not (block := more()):
            if window:
                yield window
            return b""
        window += block


def _starts_with(compression: str, block: bytes, probe: bytes) -> bool:
    # Neither decoder may hold more than it gives: one stops after the probe, the other is fed little.
    feed = (block, max(1, len(probe))) if compression == "gzip" else (block[:ZSTD_FEED_BYTES],)
    start = attempt(new_member(compression).decompress, *feed)
    return not isinstance(start, Failed) and bool(start[: len(probe)].upper() == probe)


class Part:
    """An input whose bytes up to ``end`` belong to one reader, and which finds where the next reader begins.

    That is the first member at or after ``end`` whose content begins with the probe: a property of the file's bytes,
    which the next reader finds by the same search. Reading goes on past it, because a member may reach over it.

    Args:
        raw: the input, from offset ``at`` of the file on.
        at: offset in the file, less than ``end``.
        end: offset in the file at which the bytes of this reader end.
        compression: ``gzip`` or ``zstd``.
        probe: upper-case bytes, found in any case.
    """

    def __init__(self, raw: Readable, at: int, end: int, compression: str, probe: bytes) -> None:
        self.next_start: int | None = None
        """Offset in the file at which the next reader begins, known before the byte there is handed out."""
        self._raw, self._at, self._end = raw, at, end
        self._search = before_member(b"", lambda: raw.read(SLICE_BYTES), compression, probe)
        self._ahead = b""

    def read(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes, none only at the end of the file."""
        if self._at < self._end:
            part = self._raw.read(min(count, self._end - self._at))
        else:
            self._ahead = self._ahead or self._following()
            part, self._ahead = self._ahead[:count], self._ahead[count:]
        self._at += len(part)
        return part

    def _following(self) -> bytes:
        if self.next_start is None:
            try:
                return next(self._search)
            except StopIteration as found:
                if found.value:
                    self.next_start = self._at
                    return bytes(found.value)
        return self._raw.read(SLICE_BYTES)
