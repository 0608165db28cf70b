"""JSON Lines: one object a line, plain, gzip or zstd."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from stages.readers.base import Row, Source, parse_date, utf8
from stages.readers.decompress import Damage, Stream
from stages.readers.guard import guarded

PROBE: Final = b"{"
_BLANK: Final = b" \t\r"


def rows(stream: Stream, source: Source, end: int = sys.maxsize) -> Iterator[Row]:
    """Yield one row for each line that begins before decompressed offset ``end``; blank lines are no records.

    ``Row.offset`` is the decompressed byte offset of the line's start, of a damaged member its offset in the file.
    A line ends at a line feed only. U+0000 stays what it is: JSON may hold it.
    """
    while True:
        for start, line, length in lines(stream, source.max_record_bytes, end):
            if start == 0:
                line = line.removeprefix(b"\xef\xbb\xbf")
            row = Row(start)
            if length > source.max_record_bytes:
                row.measure(source, "bytes", length, f"a line of {length} bytes")
                yield row
            elif line.strip(_BLANK):
                yield guarded(parse, row, line, source)
        if stream.damage is None:
            return
        yield damaged(stream.damage)
        if not stream.resume():
            return


def lines(stream: Stream, limit: int, end: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield (decompressed offset, line without its end, its length) of lines that begin before ``end``.

    Lines longer than ``limit`` come without their bytes, which are never held; a line cut by damage does not come.
    """
    searched = 0
    while (start := stream.offset) < end:
        found = stream.data.find(b"\n", stream.pos + searched)
        if found >= 0:
            line = bytes(stream.data[stream.pos : found])
            stream.skip(len(line) + 1)
            searched = 0
            yield start, line if len(line) <= limit else b"", len(line)
        elif len(stream.data) - stream.pos > limit:
            length = _skip_line(stream)
            if stream.damage is None:
                yield start, b"", length
            searched = 0
        else:
            searched = len(stream.data) - stream.pos
            if not stream.more():
                break
    if stream.damage is None and searched:
        yield stream.offset, bytes(stream.data[stream.pos :]), searched
        stream.skip(searched)


def _skip_line(stream: Stream) -> int:
    length = 0
    while True:
        end = stream.data.find(b"\n", stream.pos)
        if end >= 0:
            step = end - stream.pos
            stream.skip(step + 1)
            return length + step
        step = len(stream.data) - stream.pos
        length += step
        stream.skip(step)
        if not stream.more():
            return length


def damaged(damage: Damage) -> Row:
    """Return the failure row of a damaged compressed member."""
    return Row(damage.offset).fail(damage.reason, f"{damage.detail} (compressed member at byte {damage.offset})")


def parse(row: Row, line: bytes, source: Source) -> Row:
    """Read one line: a document, a drop, or a failure."""
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return row.fail("bad_encoding", f"byte {error.start} of the line is not UTF-8")
    except (ValueError, RecursionError) as error:
        return row.fail("bad_json", str(error)[:200] or type(error).__name__)
    if not isinstance(record, dict):
        return row.fail("bad_json", f"the line holds {type(record).__name__}, not an object")
    row.url, date = _string(record, source.url_key), _string(record, source.date_key)
    row.date = parse_date(date) if date else None
    text = _field(record, source.text_key)
    if not isinstance(text, str):
        what = "nothing" if text is None else type(text).__name__
        return row.fail("missing_text", f"the field {source.text_key!r} holds {what}, not a string")
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        return row.fail("bad_encoding", f"a lone surrogate at character {error.start} of {source.text_key!r}")
    if not row.measure(source, "bytes", 0 if text.isspace() else len(content)):
        row.text = content
    return row


def _field(record: dict[str, Any], key: str) -> Any:
    """Return a field by its name, or by its path, such as ``metadata.url``; None where there is none."""
    if key in record or "." not in key:
        return record.get(key)
    first, _, rest = key.partition(".")
    inner = record.get(first)
    return _field(inner, rest) if isinstance(inner, dict) else None


def _string(record: dict[str, Any], key: str) -> str | None:
    value = _field(record, key)
    return utf8(value) if isinstance(value, str) and value else None
