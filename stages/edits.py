"""Edits: what a stage changes in the text of documents, as a table of spans, so that every change is counted.

A span is given by UTF-8 byte offsets on character boundaries into the text that the stage was shown. A table is sorted
and its spans do not overlap, so it says one thing only, and applying it copies every byte once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.scores import Count

EDITS: Final = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("replacement", pa.string(), nullable=False),
    ]
)
"""The bytes ``start`` to ``end`` of the text of ``row`` become ``replacement``, for ``reason``."""

REMOVED, INSERTED = "removed_chars.", "inserted_chars."
"""How the scores are named that count the characters removed and inserted for a reason, which follows."""

Int64s: TypeAlias = npt.NDArray[np.int64]


def edit_table(
    rows: npt.ArrayLike,
    starts: npt.ArrayLike,
    ends: npt.ArrayLike,
    reasons: pa.Array | Sequence[str],
    replacements: pa.Array | Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return a table of m edits; without ``replacements`` each removes its span."""
    numbers = [pa.array(np.asarray(one, np.int64)) for one in (rows, starts, ends)]
    new = pa.repeat(pa.scalar(""), len(numbers[0])) if replacements is None else _strings(replacements)
    return pa.RecordBatch.from_arrays([*numbers, _strings(reasons), new], schema=EDITS)


def no_edits() -> pa.RecordBatch:
    """Return a table without an edit."""
    return edit_table([], [], [], [])


def joined_edits(parts: Sequence[tuple[int, pa.RecordBatch]]) -> pa.RecordBatch:
    """Return the edits of consecutive pieces of a batch as one table.

    Args:
        parts: the row at which each piece begins, and its edits, which count rows from there.
    """
    moved = [part.set_column(0, EDITS.field(0), pc.add(part.column(0), start)) for start, part in parts]
    return pa.concat_batches([no_edits(), *moved])


def _strings(values: pa.Array | Sequence[str]) -> pa.Array:
    return values.cast(pa.string()) if isinstance(values, pa.Array) else pa.array(values, pa.string())


def edit_scores(reasons: Sequence[str]) -> tuple[Count, ...]:
    """Return the scores that count what is removed and inserted for each reason."""
    return tuple(
        Count(f"{kind}{reason}", f"characters {what} for {reason}")
        for reason in reasons
        for kind, what in ((REMOVED, "removed"), (INSERTED, "inserted"))
    )


@dataclass(frozen=True)
class _Columns:
    """A column of n texts and a table of its edits, as arrays.

    Attributes:
        data: UTF-8 of all texts.
        bounds: where each begins in it, int64 of shape (n + 1,).
        rows: the row of each edit, int64 of shape (m,).
        starts: where each begins in ``data``.
        ends: where each ends in it.
    """

    data: npt.NDArray[np.uint8]
    bounds: Int64s
    rows: Int64s
    starts: Int64s
    ends: Int64s


def _columns(text: pa.Array, edits: pa.RecordBatch) -> _Columns:
    filled = text.fill_null("") if text.null_count else text
    width = np.int64 if pa.types.is_large_string(text.type) else np.int32
    _, offsets, data = filled.buffers()
    bounds = np.zeros(1, np.int64)
    if len(filled):
        bounds = np.frombuffer(offsets, width)[filled.offset : filled.offset + len(filled) + 1].astype(np.int64)
    rows, starts, ends = (np.asarray(edits.column(name)) for name in ("row", "start", "end"))
    begin = bounds[rows]
    return _Columns(np.frombuffer(data or b"", np.uint8), bounds, rows, begin + starts, begin + ends)


def require_valid(text: pa.Array, edits: pa.RecordBatch, reasons: Sequence[str] | None = None) -> None:
    """Check that a table edits a column of n texts.

    Args:
        text: string array.
        edits: in the schema ``EDITS``.
        reasons: those that there may be; None for any.

    Raises:
        ValueError: naming the first row that is wrong: the table is not sorted, spans overlap, or a span is not inside
            the text of its row, does not begin and end between characters, or has another reason.
    """
    if edits.schema != EDITS:
        raise ValueError(f"a table of edits has the columns {EDITS.names} and no nulls, not {edits.schema.names}")
    rows, starts, ends = (np.asarray(edits.column(name)) for name in ("row", "start", "end"))
    if reasons is not None:
        known = pc.is_in(edits.column("reason"), value_set=pa.array(reasons, pa.string()))
        _require(
            np.asarray(known.to_numpy(zero_copy_only=False)), rows, "has an edit for a reason that is not declared"
        )
    _require((rows >= 0) & (rows < len(text)), rows, "is edited, and there is no such row")
    held = text.is_valid().to_numpy(zero_copy_only=False)
    _require(held[rows], rows, "is edited, and has no text")
    same = np.diff(rows)
    in_order = (same > 0) | ((same == 0) & (starts[1:] >= ends[:-1]))
    _require(in_order, rows[1:], "has edits that are not in order, or overlap")
    found = _columns(text, edits)
    size = np.diff(found.bounds)[rows]
    _require((starts >= 0) & (starts <= ends) & (ends <= size), rows, "has an edit that is not inside its text")
    for places in (found.starts, found.ends):
        _require(_is_boundary(found, places), rows, "has an edit that cuts a character")


def _require(holds: npt.NDArray[np.bool_], rows: Int64s, what: str) -> None:
    if not holds.all():
        raise ValueError(f"row {rows[int(np.argmin(holds))]} {what}")


def _is_boundary(found: _Columns, places: Int64s) -> npt.NDArray[np.bool_]:
    """Return which places are between characters: at the end of their text, or where no character continues."""
    is_end = np.asarray(places == found.bounds[found.rows + 1], np.bool_)
    if len(found.data):
        is_end |= (found.data[np.minimum(places, len(found.data) - 1)] & 0xC0) != 0x80
    return is_end


def apply_edits(text: pa.Array, edits: pa.RecordBatch) -> pa.Array:
    """Return a column of texts with their edits applied; null stays null.

    Args:
        text: string array of n documents.
        edits: a table that ``require_valid`` accepts.

    Raises:
        OverflowError: if the texts become larger than an array of strings can be.
    """
    if not edits.num_rows:
        return text
    found = _columns(text, edits)
    new = edits.column("replacement")
    sizes = np.asarray(pc.binary_length(new)).astype(np.int64)
    grown = np.zeros(len(found.bounds), np.int64)
    np.add.at(grown, found.rows + 1, sizes - (found.ends - found.starts))
    bounds = found.bounds - found.bounds[0] + np.cumsum(grown)
    width = np.int64 if pa.types.is_large_string(text.type) else np.int32
    if bounds[-1] > np.iinfo(width).max:
        raise OverflowError(f"{bounds[-1]:,} bytes of text do not fit in one array")
    whole = found.data.data
    pieces: list[Any] = []
    at = int(found.bounds[0])
    for start, end, replacement in zip(found.starts.tolist(), found.ends.tolist(), new.to_pylist(), strict=True):
        pieces.append(whole[at:start])
        if replacement:
            pieces.append(replacement.encode())
        at = end
    pieces.append(whole[at : int(found.bounds[-1])])
    buffers = [None, pa.py_buffer(bounds.astype(width)), pa.py_buffer(b"".join(pieces))]
    edited = pa.Array.from_buffers(text.type, len(text), buffers)
    return pc.if_else(text.is_valid(), edited, pa.scalar(None, text.type)) if text.null_count else edited


def removed_and_inserted(text: pa.Array, edits: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """Return how many characters each of m edits removes and how many it inserts, int64 of shape (m,)."""
    if not edits.num_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    found = _columns(text, edits)
    whole = found.data.data
    removed = b"".join(whole[a:b] for a, b in zip(found.starts.tolist(), found.ends.tolist(), strict=True))
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(found.ends - found.starts)])
    spans = pa.Array.from_buffers(
        pa.large_string(), edits.num_rows, [None, pa.py_buffer(bounds), pa.py_buffer(removed)]
    )
    lengths = (pc.utf8_length(spans), pc.utf8_length(edits.column("replacement")))
    return np.asarray(lengths[0]).astype(np.int64), np.asarray(lengths[1]).astype(np.int64)


def counted(text: pa.Array, edits: pa.RecordBatch, reasons: Sequence[str]) -> dict[str, Int64s]:
    """Return the scores of ``edit_scores`` of n texts, int64 of shape (n,), by name."""
    rows, reason = np.asarray(edits.column("row")), edits.column("reason")
    both = removed_and_inserted(text, edits)
    scores: dict[str, Int64s] = {}
    for name in reasons:
        mine = np.asarray(pc.equal(reason, name).to_numpy(zero_copy_only=False))
        for kind, chars in zip((REMOVED, INSERTED), both, strict=True):
            scores[f"{kind}{name}"] = np.zeros(len(text), np.int64)
            np.add.at(scores[f"{kind}{name}"], rows[mine], chars[mine])
    return scores


def composed(first: pa.RecordBatch, later: pa.RecordBatch) -> pa.RecordBatch:
    """Return one table that does what two do, one after the other.

    The first wins: what it takes out goes for its reason, and of a later edit around it only the rest is left, in
    pieces. Of text that the first inserted, and the later takes out, nothing remains.

    Args:
        first: edits of n texts.
        later: edits of what these leave.
    """
    if not (first.num_rows and later.num_rows):
        return first if first.num_rows else later
    rows = [np.asarray(one.column("row")) for one in (first, later)]
    both = np.intersect1d(rows[0], rows[1])
    parts = [one.filter(pa.array(~np.isin(at, both))) for one, at in zip((first, later), rows, strict=True)]
    met: list[tuple[int, _Edit]] = []
    spans = [_by_row(one.filter(pa.array(np.isin(at, both)))) for one, at in zip((first, later), rows, strict=True)]
    for row in both.tolist():
        met += [(row, edit) for edit in _one_after_the_other(spans[0][row], spans[1][row])]
    columns = zip(*((row, *edit[:3], edit[3].decode()) for row, edit in met), strict=True)
    whole = pa.concat_batches([*parts, edit_table(*columns) if met else no_edits()])
    return whole.take(pa.array(np.argsort(np.asarray(whole.column("row")), kind="stable")))


_Edit: TypeAlias = tuple[int, int, str, bytes]


def _by_row(edits: pa.RecordBatch) -> dict[int, list[_Edit]]:
    found: dict[int, list[_Edit]] = {}
    for row, start, end, reason, new in zip(*(column.to_pylist() for column in edits.columns), strict=True):
        found.setdefault(row, []).append((start, end, reason, new.encode()))
    return found


def _one_after_the_other(first: Sequence[_Edit], later: Sequence[_Edit]) -> list[_Edit]:
    """Return the edits of one text that do what ``first`` and then ``later`` do."""
    waiting = deque(later)
    found: list[_Edit] = []
    # How much of the text is done, in bytes of itself and of what the first leave of it.
    at = seen = 0

    def cut(stop: int) -> tuple[int, int, str, bytes]:
        """Take the next later edit as far as ``stop``; what lies beyond waits, and inserts nothing more."""
        start, end, reason, new = waiting.popleft()
        if end > stop:
            waiting.appendleft((stop, end, reason, b""))
        return start, min(end, stop), reason, new

    for start, end, reason, new in first:
        stop = seen + start - at
        while waiting and (waiting[0][0] < stop or waiting[0][1] == stop):
            since, until, why, text = cut(stop)
            found.append((at + since - seen, at + until - seen, why, text))
        pieces, kept = [], stop
        while waiting and waiting[0][0] < stop + len(new):
            since, until, _, text = cut(stop + len(new))
            pieces += [new[kept - stop : since - stop], text]
            kept = until
        found.append((start, end, reason, b"".join([*pieces, new[kept - stop :]])))
        at, seen = end, stop + len(new)
    found += [(at + since - seen, at + until - seen, why, text) for since, until, why, text in waiting]
    return [edit for edit in found if edit[0] < edit[1] or edit[3]]
