"""What a file is: its compression by its first bytes, its container by what they hold and then by its name."""

from __future__ import annotations

import io
import re
from typing import Final, Literal

from stages.readers.decompress import Stream
from stages.readers.members import GZIP_MAGIC, PROBE_BYTES, ZSTD_MAGIC, Readable

HEAD_BYTES: Final = 512
LAYOUT_BYTES: Final = PROBE_BYTES
"""How much of a file says whether spans of it can be read: compressed bytes, where it is compressed."""

Layout = Literal["lines", "members", "row groups"]
"""What a file is a sequence of, where each can be found without reading all before it."""

# Compressions and containers that are recognised and not read.
_UNREAD_MAGIC: Final = (
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x5d\x2a\x4d\x18", "zstd with a dictionary"),
    (b"PK\x03\x04", "zip (WACZ, EPUB, ...)"),
    (b"PK\x05\x06", "zip without a file"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"ARROW1\x00\x00", "Arrow IPC"),
    (b"ORC", "ORC"),
    (b"Obj\x01", "Avro"),
    (b"SQLite format 3\x00", "SQLite"),
    (b"%PDF-", "PDF"),
)
_ARC: Final = re.compile(rb"filedesc:|[a-z]+:\S* [0-9.:a-f]+ \d{8,14} \S+.* \d+\r?\n")
_JSONL_NAME: Final = re.compile(r"\.(jsonl|ndjson|jsonlines|json)(\.(gz|zst|zstd))?$", re.IGNORECASE)
_WARC_NAME: Final = re.compile(r"\.(warc|wet|wat)(\.(gz|zst|zstd))?(\.open)?$", re.IGNORECASE)


def compression_of(head: bytes) -> str:
    """Return ``none``, ``gzip`` or ``zstd`` by the first bytes of a file."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    skippable = len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5
    return "zstd" if skippable or head.startswith(ZSTD_MAGIC) else "none"


def unread(head: bytes) -> str | None:
    """Name the compression or container of a file that is recognised by its first bytes and not read; else None."""
    for magic, name in _UNREAD_MAGIC:
        if head.startswith(magic):
            return name
    # A zstd frame header names its dictionary in the two low bits of its descriptor.
    if head.startswith(ZSTD_MAGIC) and len(head) > 4 and head[4] & 3:
        return "zstd with a dictionary"
    if head[257:262] == b"ustar":
        return "tar"
    return "ARC" if _ARC.match(head) else None


def container_of(head: bytes, path: str) -> str | None:
    """Return ``warc``, ``jsonl`` or ``parquet`` by the first decompressed bytes and the name; None if it is neither."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.lstrip(b"\r\n")[:5].upper() == b"WARC/":
        return "warc"
    if unread(head):
        return None
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{") or (_JSONL_NAME.search(path) and not start.startswith(b"[")):
        return "jsonl"
    return "warc" if _WARC_NAME.search(path) else None


def layout_of(head: bytes, path: str, source_format: str) -> Layout | None:
    """Return what spans of a file consist of, by its first ``LAYOUT_BYTES``; None if it can only be read as a whole."""
    start = head[:HEAD_BYTES]
    if not head or (source_format == "auto" and unread(start) is not None):
        return None
    if head.startswith(b"PAR1") or source_format == "parquet":
        return "row groups"
    compression = compression_of(head)
    if compression == "none":
        form = container_of(start, path) if source_format == "auto" else source_format
        return "lines" if form == "jsonl" else None
    if compression == "gzip" and source_format in ("auto", "warc"):
        content = peek(Stream(io.BytesIO(head), compression))
        return "members" if container_of(content, "") == "warc" else None
    return None


def describe(head: bytes) -> str:
    """Say what the first decompressed bytes of an unread file are."""
    name = unread(head)
    if name is None and head.lstrip().startswith(b"["):
        name = "a JSON array, not one object a line"
    return f"the file is {name}" if name else f"not recognised: the file begins with {head[:16]!r}"


class Rewound:
    """An input whose first bytes were looked at, to be read from its start without seeking."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self._head, self._rest = head, rest

    def read(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes, none only at the end."""
        if not self._head:
            return self._rest.read(count)
        part, self._head = self._head[:count], self._head[count:]
        return part


def read_head(raw: Readable, count: int = HEAD_BYTES) -> bytes:
    """Read the first ``count`` bytes, or all there are, however the input chunks its reads."""
    head = b""
    while len(head) < count and (part := raw.read(count - len(head))):
        head += part
    return head


def peek(stream: Stream) -> bytes:
    """Return the first decompressed ``HEAD_BYTES``, or as many as can be decoded, without consuming them."""
    stream.ensure(HEAD_BYTES)
    return bytes(stream.data[:HEAD_BYTES])
