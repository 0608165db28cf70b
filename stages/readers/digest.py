"""The digest of a source's content, taken while it is read: so that a later reading can tell whether it has changed."""

from __future__ import annotations

from typing import Final

import xxhash

from stages.readers.base import Span
from stages.readers.members import Seekable

FINISH_BYTES: Final = 1 << 20


class Digest:
    """XXH3 with 128 bits over all bytes of a source, or over those of its span. Not made against forgery.

    Attributes:
        hex: 32 hexadecimal digits, big-endian as XXH3 is written; None until the source has been read to its end.
    """

    def __init__(self) -> None:
        self.hex: str | None = None


class HashedInput:
    """An input that hashes the bytes [begin, end) of its file as they pass by, each once and in order.

    Bytes that are read out of order, or a second time, pass without being hashed; ``finish`` fetches what is missing.
    After a reader in sequence that is what lies behind an early end. Parquet is read in leaps, so there it is nearly
    everything, in one pass: out of the page cache where the file is local, over the network once more where it is not.
    """

    def __init__(self, raw: Seekable, span: Span | None) -> None:
        self._raw = raw
        self._hash = xxhash.xxh3_128()
        self._at = 0
        self._hashed = 0 if span is None else span.begin
        self._end = None if span is None else span.end

    def read(self, count: int = -1, /) -> bytes:
        """Return up to ``count`` bytes, none only at the end."""
        block = self._raw.read(count)
        start, self._at = self._at, self._at + len(block)
        if start <= self._hashed < self._at:
            if self._end is None and start == self._hashed:
                fresh: bytes | memoryview = block
            else:
                stop = None if self._end is None else max(0, self._end - start)
                fresh = memoryview(block)[self._hashed - start : stop]
            self._hash.update(fresh)
            self._hashed += len(fresh)
        return block

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a place, as a file does; return it."""
        self._at = self._raw.seek(offset, whence)
        return self._at

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def finish(self) -> str:
        """Hash what is still missing, and return the digest."""
        if self._at != self._hashed and (self._end is None or self._hashed < self._end):
            self.seek(self._hashed)
        while self._end is None or self._hashed < self._end:
            missing = FINISH_BYTES if self._end is None else min(FINISH_BYTES, self._end - self._hashed)
            if not self.read(missing):
                break
        return str(self._hash.hexdigest())
