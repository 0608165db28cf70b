"""A bounded, damage-tolerant stream of decompressed bytes that knows where every compressed member begins.

Python's and FastWARC's readers end quietly, or lose what was decoded before an error, when a member is cut or damaged.
Here the stream stops at the exact byte that could still be decoded and says why (``Damage``); ``resume`` goes on at the
next member. What comes out does not depend on how the input's ``read`` chunks its bytes.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import zstandard

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

SLICE_BYTES: Final = 32 << 10
"""Input is decoded in slices that begin at multiples of this offset: so damage is found at the same byte every time."""
ZSTD_FEED_BYTES: Final = 512
"""zstd turns 4 bytes into a block of 128 KiB at most, so one feeding gives 16 MiB at most."""
OUTPUT_BYTES: Final = 256 << 10
KEPT_SLICES: Final = 8
"""Slices of a member kept to look for the next one in: garbage after a cut may have swallowed its start."""
PROBE_BYTES: Final = 4096


@dataclass(frozen=True)
class Damage:
    """Why the stream stopped before the end of its input.

    Attributes:
        reason: ``truncated`` or ``decompression``.
        detail: one sentence.
        offset: bytes into the input of the member that is damaged.
        start: decompressed offset at which that member began.
    """

    reason: str
    detail: str
    offset: int
    start: int


class _Member(Protocol):
    """A decoder of one compressed member, as of zlib and zstandard."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class Stream:
    """Decompressed bytes of one input: ``data[pos:]`` is what has been decoded and not consumed.

    Args:
        raw: the input, read once from its start.
        compression: ``none``, ``gzip`` or ``zstd``, one or many members (frames).
        probe: upper-case bytes with which a member must begin, in any case, to be taken for one after damage.
    """

    def __init__(self, raw: BinaryIO, compression: str, probe: bytes = b"") -> None:
        self.data = bytearray()
        self.pos = 0
        self.damage: Damage | None = None
        self.compression = compression
        self._raw, self.probe = raw, probe
        self._base = 0  # decompressed offset of data[0]
        self._slice = memoryview(b"")  # input not decoded yet
        self._slice_end = 0  # offset in the input of the end of _slice
        self._input_ended = False
        self._kept: deque[bytes] = deque(maxlen=KEPT_SLICES)
        self._member: Any = None
        self._member_offset = 0
        self._member_start = 0
        self._members: deque[tuple[int, int]] = deque()

    @property
    def offset(self) -> int:
        """Decompressed offset of ``data[pos]``."""
        return self._base + self.pos

    def ensure(self, count: int) -> bool:
        """Decode until ``count`` bytes are there; False if the stream ends, or is damaged, before."""
        while len(self.data) - self.pos < count:
            if not self.more():
                return False
        return True

    def skip(self, count: int) -> None:
        """Consume bytes that are there, and forget the members that begin before what is left."""
        self.pos += count
        if self._members:
            self._forget_members()
        if self.pos > OUTPUT_BYTES and self.pos * 2 > len(self.data):
            del self.data[: self.pos]
            self._base += self.pos
            self.pos = 0

    def _forget_members(self) -> None:
        offset = self._base + self.pos
        while self._members and self._members[0][0] < offset:
            self._members.popleft()

    def member_at(self, offset: int) -> int | None:
        """Return the offset in the input of the member that begins at decompressed ``offset``, not consumed yet."""
        if self._members and self._members[0][0] == offset:
            return self._members[0][1]
        return None

    def members_within(self, start: int, end: int) -> list[int]:
        """Return the decompressed offsets in (start, end) at which members begin."""
        found = []
        for offset, _ in self._members:
            if offset >= end:
                break
            if offset > start:
                found.append(offset)
        return found

    def more(self) -> bool:
        """Decode some more bytes; False if the stream ends, or is damaged, here."""
        before = len(self.data)
        while self.damage is None and len(self.data) == before:
            if not self._slice and not self._next_slice():
                if self._member is not None and not self._drain():
                    self._stop("truncated", "the input ends inside compressed data")
                return len(self.data) > before
            if self.compression == "none":
                self.data += self._slice
                self._slice = memoryview(b"")
            elif self._member is None:
                self._begin_member()
            elif self.compression == "gzip":
                self._inflate()
            else:
                self._decode_zstd()
        return len(self.data) > before

    def resume(self) -> bool:
        """After damage, go on at the next member of the input; False if there is none.

        What was decoded of the damaged member and not consumed is forgotten.
        """
        if self.damage is None:
            return False
        origin = self.damage.offset + 1
        self.damage, self._member = None, None
        self._base += len(self.data)
        self.data.clear()
        self.pos = 0
        self._forget_members()
        return self.compression != "none" and self._find_member(origin)

    def _next_slice(self) -> bool:
        wanted = SLICE_BYTES - self._slice_end % SLICE_BYTES
        parts: list[bytes] = []
        while wanted and not self._input_ended:
            part = self._raw.read(wanted)
            self._input_ended = not part
            parts.append(part)
            wanted -= len(part)
        block = b"".join(parts)
        self._slice, self._slice_end = memoryview(block), self._slice_end + len(block)
        self._kept.append(block)
        return bool(block)

    def _here(self) -> int:
        return self._slice_end - len(self._slice)

    def _stop(self, reason: str, detail: str) -> None:
        self.damage = Damage(reason, detail, self._member_offset, self._member_start)

    def _begin_member(self) -> None:
        magic = GZIP_MAGIC if self.compression == "gzip" else ZSTD_MAGIC
        self._need(8)
        self._member_offset, self._member_start = self._here(), self._base + len(self.data)
        head = bytes(self._slice[:8])
        if self.compression == "zstd" and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5:
            self._skip_frame(int.from_bytes(head[4:8], "little") + 8)
        elif head.startswith(magic):
            if self._members and self._members[-1][0] == self._member_start:
                self._members.pop()
            self._members.append((self._member_start, self._member_offset))
            self._member = _new_member(self.compression)
        elif magic.startswith(head):
            self._stop("truncated", "the input ends inside the header of a compressed member")
        elif not self._only_padding():
            self._stop("decompression", f"bytes that begin no {self.compression} member: {head!r}")

    def _need(self, count: int) -> None:
        """Make the slice at least ``count`` bytes long, where the input has them."""
        if len(self._slice) < count:
            rest = bytes(self._slice)
            self._next_slice()
            self._slice = memoryview(rest + bytes(self._slice))

    def _skip_frame(self, count: int) -> None:
        while count and (self._slice or self._next_slice()):
            step = min(count, len(self._slice))
            self._slice = self._slice[step:]
            count -= step
        if count:
            self._stop("truncated", "the input ends inside a skippable frame")

    def _only_padding(self) -> bool:
        """Consume zeros, which tape and block devices leave at the end; False at any other byte."""
        while self._slice or self._next_slice():
            if bytes(self._slice).strip(b"\0"):
                return False
            self._slice = memoryview(b"")
        return True

    def _inflate(self) -> None:
        member, piece = self._member, self._slice
        fresh = self._here() == self._member_offset
        backup = None if fresh else member.copy()
        try:
            self.data += member.decompress(piece, OUTPUT_BYTES)
        except zlib.error as error:
            self._salvage(backup or zlib.decompressobj(31), bytes(piece))
            self._stop("decompression", f"damaged gzip data: {error}")
            return
        left = len(member.unused_data) if member.eof else len(member.unconsumed_tail)
        self._slice = piece[len(piece) - left :]
        if member.eof:
            self._member = None

    def _drain(self) -> bool:
        """Take what zlib still holds back after the input's last byte; False if that is nothing."""
        before = len(self.data)
        if self.compression == "gzip":
            self.data += self._member.decompress(b"", OUTPUT_BYTES)
        return len(self.data) > before

    def _salvage(self, member: Any, piece: bytes) -> None:
        """Decode ``piece`` byte by byte: an error makes zlib forget what it had decoded in the same call."""
        for index in range(len(piece)):
            try:
                self.data += member.decompress(piece[index : index + 1])
            except zlib.error:
                return

    def _decode_zstd(self) -> None:
        piece = self._slice[:ZSTD_FEED_BYTES]
        try:
            self.data += self._member.decompress(piece)
        except zstandard.ZstdError as error:
            self._stop("decompression", f"damaged zstd data: {error}")
            return
        left = len(self._member.unused_data) if self._member.eof else 0
        self._slice = self._slice[len(piece) - left :]
        if self._member.eof:
            self._member = None

    def _find_member(self, origin: int) -> bool:
        """Set the input to the next place at or after ``origin`` where a member begins that starts with the probe."""
        magic = GZIP_MAGIC if self.compression == "gzip" else ZSTD_MAGIC
        window = self._seen_since(origin)
        while True:
            at = window.find(magic)
            while at >= 0:
                if len(window) - at < PROBE_BYTES and self._next_slice():
                    # What lies before is done with: no more than two slices are held, however many starts there are.
                    window, at = window[at:] + bytes(self._slice), 0
                if _starts_with(self.compression, window[at : at + PROBE_BYTES], self.probe):
                    self._slice = memoryview(window)[at:]
                    return True
                at = window.find(magic, at + 1)
            window = window[-(len(magic) - 1) :]
            if not self._next_slice():
                self._slice = memoryview(b"")
                return False
            window += bytes(self._slice)

    def _seen_since(self, origin: int) -> bytes:
        """Return the input from ``origin``, or from where it is still kept, to the end of the slice."""
        parts, start = [], self._slice_end
        for block in reversed(self._kept):
            if start <= origin:
                break
            parts.append(block)
            start -= len(block)
        return b"".join(reversed(parts))[max(0, origin - start) :]


def _new_member(compression: str) -> Any:
    return zlib.decompressobj(31) if compression == "gzip" else zstandard.ZstdDecompressor().decompressobj()


def _starts_with(compression: str, block: bytes, probe: bytes) -> bool:
    """Return whether ``block`` begins a member whose content begins with ``probe``."""
    try:
        if compression == "gzip":
            start = zlib.decompressobj(31).decompress(block, max(1, len(probe)))
        else:
            start = _new_member("zstd").decompress(block[:ZSTD_FEED_BYTES])
    except (zlib.error, zstandard.ZstdError):
        return False
    return bool(start[: len(probe)].upper() == probe)
