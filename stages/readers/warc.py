"""Splits WARC, WET and WAT files (0.17 to 1.1) into records, exactly: every byte belongs to one record or one failure.

FastWARC stops quietly at a cut member, raises and loses the rest at damage, and believes a wrong Content-Length. Here a
record must end where its length says; if it does not, it fails, and reading goes on at the next record start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from stages.readers.decompress import Damage, Stream

PROBE: Final = b"WARC/"
VERSIONS: Final = ("WARC/0.17", "WARC/0.18", "WARC/1.0", "WARC/1.1")
MAX_HEADER_BYTES: Final = 64 << 10
HEAD_BYTES: Final = 64 << 10
"""How much of a block longer than the limit is shown: enough for its HTTP header."""
DOCUMENT_TYPES: Final = frozenset({"response", "resource", "conversion"})
"""Records whose block is copied; of the others only the header is of use."""
TYPES: Final = DOCUMENT_TYPES | {"warcinfo", "request", "metadata", "revisit", "continuation"}
"""Every WARC-Type of the standard."""

_HEADER_END: Final = re.compile(rb"\n\r*\n")
_START: Final = re.compile(rb"\n[Ww][Aa][Rr][Cc]/\d\.\d{1,2}[ \t]*\r*\n[A-Za-z][A-Za-z-]*[ \t]*:")
_START_SPAN: Final = 256
_SPACE: Final = " \t\r\n\v\f"
_NEWLINES: Final = re.compile(rb"[\r\n]*")


@dataclass
class Record:
    """One WARC record, or a stretch of bytes that is none.

    Attributes:
        offset: bytes into the file where its gzip member or zstd frame begins if it begins one, else bytes into the
            decompressed file where it begins (in a part of a file, ``Stream.place`` says what then).
        end: decompressed offset of its end.
        version: the version line, empty if there is none.
        fields: named fields by lower-case name, the first of each.
        length: bytes of the block as declared; 0 if that is unknown.
        block: the block, its first ``HEAD_BYTES`` if it is longer than the limit, nothing for other than documents.
        failure: (reason, detail) if the record is damaged.
        begins_member: whether a gzip member or zstd frame begins with it.
        type: WARC-Type in lower case.
    """

    offset: int
    end: int
    version: str
    fields: dict[str, str]
    length: int = 0
    block: bytes = b""
    failure: tuple[str, str] | None = None
    begins_member: bool = False
    type: str = field(init=False)

    def __post_init__(self) -> None:
        self.type = self.fields.get("warc-type", "").lower()


def records(stream: Stream, limit: int) -> Iterator[Record]:
    """Yield every record of the stream in order; blocks longer than ``limit`` bytes pass without being held.

    Where the stream is one part of a file, it is the records that begin before the next part does.
    """
    while True:
        found = _skip_newlines(stream)
        if stream.part_end is not None and stream.offset >= stream.part_end:
            return
        if not found:
            if stream.damage is None:
                return
            yield Record(stream.damage.offset, stream.offset, "", {}, failure=_damage(stream.damage))
        else:
            record = _read(stream, limit)
            if _skip_newlines(stream) or stream.damage is None or stream.damage.start >= record.end:
                yield record
                continue
            record.failure = _damage(stream.damage)
            yield record
        if not stream.resume():
            return


def _damage(damage: Damage) -> tuple[str, str]:
    return damage.reason, f"{damage.detail} (compressed member at byte {damage.offset})"


def _skip_newlines(stream: Stream) -> bool:
    """Skip to the next byte that is no line end; False if there is none."""
    while stream.pos < len(stream.data) or stream.ensure(1):
        if stream.data[stream.pos] not in b"\r\n":
            return True
        match = _NEWLINES.match(stream.data, stream.pos)
        stream.skip(match.end() - match.start() if match else 0)
    return False


def _read(stream: Stream, limit: int) -> Record:
    offset, begins_member = stream.place()
    header = _header(stream)
    if header is None:
        skipped = _skip_to_start(stream, 1)
        failure = ("bad_record", f"{skipped} bytes that begin no WARC record")
        return Record(offset, stream.offset, "", {}, failure=failure, begins_member=begins_member)
    version, fields = _fields(header)
    stream.skip(len(header))
    record = Record(offset, stream.offset, version, fields, begins_member=begins_member)
    digits = fields.get("content-length", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        skipped = _skip_to_start(stream, 0)
        what = f"Content-Length is {digits[:40]!r}" if digits else "no Content-Length"
        record.failure = ("bad_record", f"{what}; {skipped} bytes follow up to the next record")
    else:
        record.length = int(digits)
        (_take if record.length <= limit else _pass)(stream, record)
    record.end = stream.offset
    return record


def _header(stream: Stream) -> bytes | None:
    """Return the header with its blank line, up to the next record start or the stream's end if that is missing."""
    if not _begins_record(stream, 0):
        return None
    searched = 0
    while True:
        match = _HEADER_END.search(stream.data, stream.pos + max(0, searched - 256))
        size = (match.end() if match else len(stream.data)) - stream.pos
        if match or size > MAX_HEADER_BYTES or not stream.more():
            break
        searched = size
    if size > MAX_HEADER_BYTES:
        return None
    cut = _find_start(stream, 1, size)
    return bytes(stream.data[stream.pos : stream.pos + (size if cut is None else cut)])


def _fields(header: bytes) -> tuple[str, dict[str, str]]:
    try:
        lines = header.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        # One field in another charset does not make the others so.
        lines = [_text(line) for line in header.split(b"\n")]
    fields: dict[str, str] = {}
    last = ""
    for line in lines[1:]:
        if line.startswith((" ", "\t")) and last:
            fields[last] = f"{fields[last]} {line.strip(_SPACE)}".strip(_SPACE)
            continue
        name, colon, value = line.partition(":")
        if colon:
            last = name.strip(_SPACE).lower()
            if last not in fields:
                fields[last] = value.strip(_SPACE)
    return lines[0].strip(_SPACE).upper(), fields


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _take(stream: Stream, record: Record) -> None:
    """Consume a block that fits into memory, checking that it ends where its length says."""
    length = record.length
    whole = stream.ensure(length)
    present = length if whole else len(stream.data) - stream.pos
    cut = _member_within(stream, present)
    if cut is None and whole and not _ends_well(stream, length):
        stream.ensure(length + _START_SPAN)
        cut = _find_start(stream, 0, len(stream.data) - stream.pos)
        cut = present if cut is None else cut
    elif cut is None and not whole and stream.damage is None:
        cut = _find_start(stream, 0, present)
        if cut is None:
            record.failure = ("truncated", f"the file ends {length - present} bytes before the record of {length} does")
    if cut is not None:
        stream.skip(cut)
        skipped = cut + _skip_to_start(stream, 0)
        record.failure = _wrong_length(length, skipped)
        return
    if record.type in DOCUMENT_TYPES:
        with memoryview(stream.data) as view:
            record.block = bytes(view[stream.pos : stream.pos + present])
    stream.skip(present)


def _pass(stream: Stream, record: Record) -> None:
    """Consume a block without holding it; a record start inside it means that its length is wrong."""
    stream.ensure(min(HEAD_BYTES, record.length))
    if record.type in DOCUMENT_TYPES:
        record.block = bytes(stream.data[stream.pos : stream.pos + HEAD_BYTES])
    left = record.length
    while left > _START_SPAN:
        wanted = min(left, HEAD_BYTES)
        whole = stream.ensure(wanted)
        present = min(wanted, len(stream.data) - stream.pos)
        found = _find_start(stream, 0, present)
        if found is not None:
            stream.skip(found)
            record.failure = _wrong_length(record.length, record.length - left + found)
            return
        if not whole:
            stream.skip(present)
            short = left - present
            record.failure = ("truncated", f"the file ends {short} bytes before the record of {record.length} does")
            return
        # The last bytes stay, for a record start that they may cut.
        step = present - _START_SPAN
        stream.skip(step)
        left -= step
    if not stream.ensure(left):
        record.failure = ("truncated", f"the file ends inside the record of {record.length} bytes")
        left = len(stream.data) - stream.pos
    elif not _ends_well(stream, left):
        skipped = record.length + _skip_to_start(stream, 0) - left
        record.failure = _wrong_length(record.length, skipped)
        return
    stream.skip(left)


def _wrong_length(declared: int, found: int) -> tuple[str, str]:
    return "bad_record", f"Content-Length {declared} ends at no record boundary; {found} bytes up to the next record"


def _ends_well(stream: Stream, length: int) -> bool:
    """Return whether a block of ``length`` bytes is followed by a blank line, a record, or the end."""
    stream.ensure(length + 9)
    tail = bytes(stream.data[stream.pos + length : stream.pos + length + 9])
    rest = tail.lstrip(b"\r\n")
    if rest[: len(PROBE)].upper() == PROBE[: len(rest)]:
        return True
    # No record follows, so the blank line may be the one after the header of a record that the block has swallowed.
    return tail.startswith((b"\r\n\r\n", b"\n\n")) and _find_start(stream, 0, length) is None


def _begins_record(stream: Stream, distance: int) -> bool:
    """Return whether ``distance`` bytes on stands what begins a record; some writers write it in lower case."""
    stream.ensure(distance + len(PROBE))
    start = stream.pos + distance
    return stream.data[start : start + len(PROBE)].upper() == PROBE


def _member_within(stream: Stream, count: int) -> int | None:
    """Return the distance to the first member inside the next ``count`` bytes that begins a record."""
    here = stream.offset
    for offset in stream.members_within(here, here + count):
        if _begins_record(stream, offset - here):
            return offset - here
    return None


def _find_start(stream: Stream, origin: int, count: int) -> int | None:
    """Return the distance to the first record start within the next ``count`` bytes, at ``origin`` or after."""
    member = _member_within(stream, count)
    begin = max(0, stream.pos + origin - 1)
    match = _START.search(stream.data, begin, stream.pos + count)
    if match is None:
        return member
    found = match.start() + 1 - stream.pos
    return found if member is None else min(found, member)


def _skip_to_start(stream: Stream, origin: int) -> int:
    """Skip to the next record start, at ``origin`` or after, or to the stream's end; return the bytes skipped."""
    if origin == 0 and _begins_record(stream, 0):
        return 0
    skipped = 0
    while True:
        whole = stream.ensure(HEAD_BYTES)
        present = len(stream.data) - stream.pos
        found = _find_start(stream, origin, present)
        if found is not None:
            stream.skip(found)
            return skipped + found
        # The last bytes stay, for a record start that they may cut.
        step = present - _START_SPAN if whole else present
        stream.skip(step)
        skipped += step
        origin = 0
        if not whole:
            return skipped
