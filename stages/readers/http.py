"""HTTP responses as crawlers store them: status, header fields, and the body with its codings undone within bounds."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

import brotli
import zstandard

from stages.readers.guard import Failed, attempt, explain

_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)")
_SPACE: Final = " \t\r\n\v\f"
_HEADER_END: Final = re.compile(rb"\n\r*\n")
_CHUNK_SIZE: Final = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n|$")
_GZIP_START: Final = re.compile(rb"\x1f\x8b")
_ZSTD_START: Final = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""A frame, or one to be skipped (RFC 8878, section 3.1.2)."""
FIRST_FEED_BYTES: Final = 256
MAX_FEED_BYTES: Final = 32 << 10
ZSTD_FEED_BYTES: Final = 512
"""zstd turns 4 bytes into a block of 128 KiB at most, so one feeding gives 16 MiB at most."""
_UNREAD_CODINGS: Final = frozenset({"compress", "x-compress", "sdch", "dcb", "dcz", "exi", "pack200-gzip", "aes128gcm"})


class BodyError(Exception):
    """A body that cannot be decoded.

    Attributes:
        detail: what is wrong with it.
        failure: one of the readers' failures; empty where the body is not damaged.
        coding: the coding that is not read, where that is the reason.
        bytes: how long it is at least, where it is too long.
    """

    def __init__(self, detail: str, *, failure: str = "", coding: str = "", at_least: int = 0) -> None:
        super().__init__(detail)
        self.detail, self.failure, self.coding, self.bytes = detail, failure, coding, at_least


@dataclass(frozen=True)
class Response:
    """A response: ``status``, header fields by lower-case name (the first of each), and the ``body`` as stored."""

    status: int
    fields: dict[str, str]
    body: bytes


def parse_response(block: bytes) -> Response | None:
    """Return the response in ``block``, or None if it begins with no HTTP status line. A header may lack its end."""
    status = _STATUS.match(block)
    if status is None:
        return None
    end = _HEADER_END.search(block)
    header, body = (block[: end.start()], block[end.end() :]) if end else (block, b"")
    fields: dict[str, str] = {}
    for line in header.decode("latin-1").split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon and (key := name.strip(_SPACE).lower()) not in fields:
            fields[key] = value.strip(_SPACE)
    return Response(int(status[1]), fields, body)


def decode_body(response: Response, limit: int) -> bytes:
    """Undo Transfer-Encoding and Content-Encoding, giving ``limit`` bytes at most.

    Crawlers often store a body decoded and its header fields as sent: a body that plainly is not coded stays as it is.
    A body that ends early is taken as far as it goes, as a browser does.

    Raises:
        BodyError: if the body is damaged, too large once decoded, or in a coding that is not read.
    """
    body = response.body
    if "chunked" in response.fields.get("transfer-encoding", "").lower():
        body = dechunk(body)
    codings = [coding.strip().lower() for coding in response.fields.get("content-encoding", "").split(",")]
    for coding in reversed(codings):
        body = _decode(coding, body, limit)
    return body


def dechunk(body: bytes) -> bytes:
    """Undo chunked transfer coding; a body whose first chunk does not fit its size was stored without it."""
    chunks: list[bytes] = []
    pos = 0
    while pos < len(body):
        size = _CHUNK_SIZE.match(body, pos)
        if size is None:
            # A cut size line at the end of the body is one that ends early.
            if b"\n" not in body[pos : pos + 32] and len(body) - pos <= 16 and chunks:
                break
            return _broken_chunks(body, chunks, pos)
        start, end = size.end(), size.end() + int(size[1], 16)
        if end == start:
            break
        chunks.append(body[start:end])
        after = _LINE_END.match(body, end)
        if after is None and end < len(body):
            return _broken_chunks(body, chunks[:-1], end)
        pos = after.end() if after else end
    return b"".join(chunks)


def _broken_chunks(body: bytes, chunks: list[bytes], pos: int) -> bytes:
    if not chunks:
        return body
    raise BodyError(f"chunked coding breaks at byte {pos} of the body, after {len(chunks)} chunks", failure="bad_http")


def _decode(coding: str, body: bytes, limit: int) -> bytes:
    if coding in _UNREAD_CODINGS:
        raise BodyError(f"Content-Encoding {coding} is not read", coding=coding)
    decoded = attempt(_decoded, coding, body, limit)
    if isinstance(decoded, Failed):
        if body.lstrip().startswith(b"<"):
            return body
        known = isinstance(decoded.error, (zlib.error, zstandard.ZstdError, brotli.error))
        why = decoded.error if known else explain(decoded.error)
        raise BodyError(f"Content-Encoding {coding}: {why}", failure="decompression") from decoded.error
    if len(decoded) > limit:
        raise BodyError(f"more than {limit} bytes after Content-Encoding {coding}", at_least=len(decoded))
    return decoded


def _decoded(coding: str, body: bytes, limit: int) -> bytes:
    if coding in ("gzip", "x-gzip") and _GZIP_START.match(body):
        return gunzip(body, limit)
    if coding == "deflate":
        return _inflate(body, limit)
    if coding == "br":
        return _unbrotli(body, limit)
    if coding == "zstd" and _ZSTD_START.match(body):
        return unzstd(body, limit)
    return body


def gunzip(body: bytes, limit: int) -> bytes:
    """Return what the gzip members that ``body`` begins with hold, up to about ``limit`` bytes.

    Raises:
        zlib.error: if a member is damaged.
    """
    # A decoder copies what it is fed and does not use, so members are fed little at first: else many are quadratic.
    out, view, pos = bytearray(), memoryview(body), 0
    while len(out) <= limit and _GZIP_START.match(body, pos):
        member, feed = zlib.decompressobj(31), FIRST_FEED_BYTES
        while not member.eof and pos < len(body) and len(out) <= limit:
            piece = view[pos : pos + feed]
            out += member.decompress(piece, limit + 1 - len(out))
            pos += len(piece) - len(member.unused_data if member.eof else member.unconsumed_tail)
            feed = min(2 * feed, MAX_FEED_BYTES)
    return bytes(out)


def unzstd(body: bytes, limit: int) -> bytes:
    """Return what the zstd frames that ``body`` begins with hold, stopping less than 16 MiB beyond ``limit``.

    Raises:
        zstandard.ZstdError: if a frame is damaged.
    """
    out, view, pos = bytearray(), memoryview(body), 0
    while len(out) <= limit and _ZSTD_START.match(body, pos):
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof and pos < len(body) and len(out) <= limit:
            piece = view[pos : pos + ZSTD_FEED_BYTES]
            out += frame.decompress(piece)
            pos += len(piece) - len(frame.unused_data)
    return bytes(out)


def _inflate(body: bytes, limit: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(body, limit + 1)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(body, limit + 1)


def _unbrotli(body: bytes, limit: int) -> bytes:
    decoder = brotli.Decompressor()
    out = decoder.process(body, output_buffer_limit=limit + 1)
    while len(out) <= limit and not decoder.can_accept_more_data():
        more = decoder.process(b"", output_buffer_limit=limit + 1 - len(out))
        if not more:
            break
        out += more
    return bytes(out)
