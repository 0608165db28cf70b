"""A large file is cut into spans of bytes, each read as a source of its own.

A record belongs to the span in which its first byte lies:

- JSON Lines, not compressed: a line begins at the file's start and after every line feed.
- WARC in gzip: a span begins with the first member in it whose content begins with ``WARC/``, and goes on to the
  first such member at or after its end. What lies between (a second record in one member, damage, bytes that belong to
  no record) belongs with the member before it, so nothing is lost and nothing is read twice.
- Parquet: a row group begins with the first byte of its first column chunk.

Whatever else there is (JSON Lines under gzip or zstd, WARC under zstd, WARC without compression, where a page may
quote the start of a record) cannot be cut: all of it belongs to the span that begins at 0, nothing to the others.

The rows of all spans together are the rows of the whole file, except for

- ids: each span is a source of its own, and counts its records from 0;
- ``empty_file``: not for a span with nothing in it, where the file has bytes outside;
- the offset of a WARC record that does not begin a member: in a span that is the offset of the member that it lies in;
- damage behind which a decoder ran on for more than ``decompress.KEPT_SLICES`` slices: a later span may find records
  there that a reader of the whole file passes over.

A gzip file that is stored, not compressed, inside another one looks like a member of it. A span that begins at such a
place reads records that a reader of the whole file does not see. That does not pass unnoticed: the true member reaches
over the start of the next span, and its record is a failure (``bad_record``) with its place. By chance this takes an
archive within an archive just where a file is cut; a file made for it can hide or add records, but only its own.

A span reads the first ``LAYOUT_BYTES`` of the file (Parquet: its footer), its own bytes, its last record to the end,
and ahead by no more than a slice and a probe (a record whose length is wrong: by ``max_record_bytes``, decompressed).
"""

from __future__ import annotations

import io
from bisect import bisect_left
from itertools import islice, pairwise
from typing import BinaryIO, Final

from stages.readers import parquet, warc
from stages.readers.base import OpenInput, Span
from stages.readers.decompress import Stream
from stages.readers.detect import LAYOUT_BYTES, layout_of, read_head
from stages.readers.members import SLICE_BYTES, Seekable, before_member

__all__ = ["Span", "cut", "line_start", "member_start"]

MEMBERS_HEAD_BYTES: Final = 256 << 10
"""How much of a WARC file is looked at to see that it has one member per record: a first record and some more."""
MEMBERS_SEEN: Final = 8


def cut(path: str, size: int, target_bytes: int, source_format: str, open_input: OpenInput) -> tuple[Span, ...]:
    """Return consecutive spans that cover [0, size) of a file, of about ``target_bytes`` each and equal in length.

    A function of the file's content alone, of which it looks at the head (Parquet: the footer). The spans of Parquet
    begin with row groups, so they are as equal as those allow. What cannot be cut is one span.

    Args:
        path: what ``open_input`` is given; its ending counts where the content does not say what the file is.
        size: bytes in the file.
        target_bytes: the most that a span should have, at least 1.
        source_format: one of ``FORMATS``.
        open_input: opens a path for reading bytes, from any place.

    Raises:
        OSError: if the file cannot be opened or read.
    """
    parts = -(-size // max(1, target_bytes))
    if parts <= 1:
        return (Span(0, size),)
    with open_input(path) as raw:
        layout = layout_of(read_head(raw, LAYOUT_BYTES), path, source_format)
        if layout is None or (layout == "members" and not _has_member_per_record(raw)):
            return (Span(0, size),)
        places = [size * number // parts for number in range(1, parts)]
        if layout == "row groups":
            places = _moved(places, [start for start in parquet.group_starts(raw, path) if start < size])
    edges = [0, *places, size]
    return tuple(Span(begin, end) for begin, end in pairwise(edges))


def _moved(places: list[int], starts: list[int]) -> list[int]:
    """Return each place moved up to the next of ``starts`` (ascending), without those that have none or coincide."""
    found = {starts[at] for place in places if (at := bisect_left(starts, place)) < len(starts)}
    return sorted(found)


def _has_member_per_record(raw: BinaryIO) -> bool:
    """Return whether the first records of a WARC file in gzip have a member each."""
    raw.seek(0)
    stream = Stream(io.BytesIO(read_head(raw, MEMBERS_HEAD_BYTES)), "gzip", warc.PROBE)
    seen = [record.begins_member for record in islice(warc.records(stream, 0), MEMBERS_SEEN)]
    return len(seen) > 1 and all(seen)


def line_start(raw: Seekable, span: Span) -> tuple[int, bytes] | None:
    """Return (offset of the first line that begins in ``span``, the bytes from there on that have been read), or None.

    ``raw`` is left behind those bytes.
    """
    at = max(0, span.begin - 1)
    raw.seek(at)
    if span.begin == 0:
        return 0, b""
    while at < span.end - 1 and (block := raw.read(min(SLICE_BYTES, span.end - 1 - at))):
        if (found := block.find(b"\n")) >= 0:
            return at + found + 1, block[found + 1 :]
        at += len(block)
    return None


def member_start(raw: Seekable, span: Span) -> tuple[int, bytes] | None:
    """Return (offset of the first WARC member that begins in ``span``, the bytes from there on), as ``line_start``."""
    at = span.begin
    raw.seek(at)
    if at == 0:
        return 0, b""
    search = before_member(b"", lambda: raw.read(SLICE_BYTES), "gzip", warc.PROBE)
    while at < span.end:
        try:
            at += len(next(search))
        except StopIteration as found:
            return (at, found.value) if found.value and at < span.end else None
    return None
