"""A bounded, damage-tolerant stream of decompressed bytes that knows where every compressed member begins.

Python's and FastWARC's readers end quietly, or lose what was decoded before an error, when a member is cut or damaged.
Here the stream stops at the exact byte that could still be decoded and says why (``Damage``); ``resume`` goes on at the
next member. What comes out does not depend on how the input's ``read`` chunks its bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from stages.readers.guard import PASSING, Failed, attempt, explain
from stages.readers.members import (
    DECODING_ERRORS,
    PROBE_BYTES,
    SLICE_BYTES,
    ZSTD_FEED_BYTES,
    Part,
    Readable,
    before_member,
    magic_of,
    new_member,
)

OUTPUT_BYTES: Final = 256 << 10
KEPT_SLICES: Final = 8
"""Slices of a member kept to look for the next one in: garbage after a cut may have swallowed its start."""


@dataclass(frozen=True)
class Damage:
    """Why the stream stopped before the end of its input.

    Attributes:
        reason: ``truncated`` or ``decompression``; ``bad_record`` where two parts of a file overlap (see ``Stream``).
        detail: one sentence.
        offset: bytes into the input of the member that is damaged.
        start: decompressed offset at which that member began.
    """

    reason: str
    detail: str
    offset: int
    start: int


class Stream:
    """Decompressed bytes of one input: ``data[pos:]`` is what has been decoded and not consumed.

    With ``end`` it is one part of a file of many members. The next part begins at the first member at or after ``end``
    whose content begins with the probe; the stream goes on there, but tells its offset (``part_end``). A member that
    reaches over that place is damage (``bad_record``): nothing nearby can say which of the two is what it seems.

    Args:
        raw: the input, read once from where it stands.
        compression: ``none``, ``gzip`` or ``zstd``, one or many members (frames).
        probe: upper-case bytes with which a member must begin, in any case, to be taken for one after damage.
        origin: offset in the file at which ``raw`` stands.
        end: offset in the file after which another part begins; None if all that follows is to be read.
    """

    def __init__(
        self, raw: Readable, compression: str, probe: bytes = b"", origin: int = 0, end: int | None = None
    ) -> None:
        self.data = bytearray()
        self.pos = 0
        self.damage: Damage | None = None
        self.compression = compression
        self.probe = probe
        self.part_end: int | None = None
        """Decompressed offset at which the next part begins, once that is known."""
        self._part = None if end is None else Part(raw, origin, end, compression, probe)
        self._raw: Readable = self._part or raw
        self._origin = origin
        self._base = origin if compression == "none" else 0  # decompressed offset of data[0]
        self._slice = memoryview(b"")  # input not decoded yet
        self._slice_end = origin  # offset in the file of the end of _slice
        self._input_ended = False
        self._kept: deque[bytes] = deque(maxlen=KEPT_SLICES)
        self._member: Any = None
        self._member_offset = 0
        self._member_start = 0
        self._members: deque[tuple[int, int]] = deque()
        self._passed = origin  # offset in the file of the last member that begins before data[pos]

    @property
    def offset(self) -> int:
        """Decompressed offset of ``data[pos]``, counted from the file's start or from that of its part."""
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
            self._passed = self._members.popleft()[1]

    def place(self) -> tuple[int, bool]:
        """Return where in the file ``data[pos]`` is to be found, and whether a member begins with it.

        That is the offset of its member if it begins one, else its decompressed offset. In a part that does not begin
        at the file's start nobody knows that one: there it is the offset of the member that it lies in.
        """
        offset = self._base + self.pos
        if self._members and self._members[0][0] == offset:
            return self._members[0][1], True
        return self._passed if self._origin else offset, False

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
                if self._member is None:
                    self._meet_next_part()
                elif not self._drain() and self.damage is None:
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
        """After damage, go on at the next member of the input or part; False if there is none.

        What was decoded of the damaged member and not consumed is forgotten.
        """
        if self.damage is None or self.part_end is not None:
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

    def _next_start(self) -> int | None:
        return None if self._part is None else self._part.next_start

    def _meet_next_part(self) -> None:
        """Note where the next part begins, once a member begins there; one that reaches over its start is damage."""
        start = self._next_start()
        if start is None or self.part_end is not None or self._here() < start:
            return
        self.part_end = self._base + len(self.data)
        if self._here() > start:
            self._stop("bad_record", f"inside it, at byte {start}, stands what the next part of this file begins with")

    def _begin_member(self) -> None:
        self._meet_next_part()
        if self.damage is not None:
            return
        magic = magic_of(self.compression)
        self._need(8)
        self._member_offset, self._member_start = self._here(), self._base + len(self.data)
        head = bytes(self._slice[:8])
        if self.compression == "zstd" and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5:
            self._skip_frame(int.from_bytes(head[4:8], "little") + 8)
        elif head.startswith(magic):
            if self._members and self._members[-1][0] == self._member_start:
                self._members.pop()
            self._members.append((self._member_start, self._member_offset))
            self._member = new_member(self.compression)
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
        backup = None if self._here() == self._member_offset else attempt(member.copy)
        decoded = attempt(member.decompress, piece, OUTPUT_BYTES)
        if isinstance(decoded, Failed):
            if not isinstance(backup, Failed):
                self._salvage(backup or new_member("gzip"), bytes(piece))
            self._stop_decoding(decoded.error)
            return
        self.data += decoded
        left = len(member.unused_data) if member.eof else len(member.unconsumed_tail)
        self._slice = piece[len(piece) - left :]
        if member.eof:
            self._member = None

    def _stop_decoding(self, error: BaseException) -> None:
        known = isinstance(error, DECODING_ERRORS)
        self._stop("decompression", f"damaged {self.compression} data: {error if known else explain(error)}")

    def _drain(self) -> bool:
        """Take what zlib still holds back after the input's last byte; False if that is nothing."""
        if self.compression != "gzip":
            return False
        decoded = attempt(self._member.decompress, b"", OUTPUT_BYTES)
        if isinstance(decoded, Failed):
            self._stop_decoding(decoded.error)
            return False
        self.data += decoded
        return bool(decoded)

    def _salvage(self, member: Any, piece: bytes) -> None:
        """Decode ``piece`` byte by byte: an error makes zlib forget what it had decoded in the same call."""
        for index in range(len(piece)):
            decoded = attempt(member.decompress, piece[index : index + 1])
            if isinstance(decoded, Failed):
                return
            self.data += decoded

    def _decode_zstd(self) -> None:
        piece = self._slice[:ZSTD_FEED_BYTES]
        # As ``attempt`` does; calling it costs something where feedings are so small.
        try:
            self.data += self._member.decompress(piece)
        except PASSING:
            raise
        except BaseException as error:
            self._stop_decoding(error)
            return
        left = len(self._member.unused_data) if self._member.eof else 0
        self._slice = self._slice[len(piece) - left :]
        if self._member.eof:
            self._member = None

    def _find_member(self, origin: int) -> bool:
        """Set the input to the next place at or after ``origin`` where a member begins that starts with the probe."""
        search = before_member(self._seen_since(origin), self._more_of_part, self.compression, self.probe)
        while True:
            try:
                next(search)
            except StopIteration as found:
                self._slice = memoryview(found.value)
                return bool(self._slice)

    def _more_of_part(self) -> bytes:
        """Return the next slice, none where the next part has begun: no member is looked for beyond its start."""
        start = self._next_start()
        if start is not None and self._slice_end >= start + PROBE_BYTES:
            return b""
        return bytes(self._slice) if self._next_slice() else b""

    def _seen_since(self, origin: int) -> bytes:
        """Return the input from ``origin``, or from where it is still kept, to the end of the slice."""
        parts, start = [], self._slice_end
        for block in reversed(self._kept):
            if start <= origin:
                break
            parts.append(block)
            start -= len(block)
        return b"".join(reversed(parts))[max(0, origin - start) :]
