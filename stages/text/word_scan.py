"""One reading of a text for all heuristics: its words, its lines, and what is counted of the signs between them.

Words are those of ``stages.text.words``; signs are all other characters that are not white space. A run is what stands
between white space; a price, a date or a row of dashes is one without a letter. A line ends at a line feed; lines of
white space alone separate paragraphs and do not count. Two lines are the same if their words are and the signs between
them, white space aside. Characters are counted without white space; what stands between two words counts with the
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.jit import argument, kernel, mix, subkernel
from stages.scans import Scan
from stages.text.characters import BULLET, CLASS_SHIFT, IGNORED, WHITESPACE, character_table
from stages.text.utf8 import decode, utf8_buffers
from stages.text.words import (
    ALPHABETIC_WORD,
    CHARACTERS,
    UNSPACED_WORD,
    base_powers,
    byte_terms,
    cut_words,
)

WORDS, SPACED, SPACED_CHARS, ALPHABETIC_WORDS = range(4)
SIGNS, HASHES, ELLIPSES, LETTERLESS_RUNS, LINES, BULLET_LINES, ELLIPSIS_LINES = range(4, 11)
COUNTS: Final = 11
"""What is counted of a whole document. ``SPACED`` are the words of scripts that write spaces."""

MAX_WORDS: Final = 1 << 20
"""Words and lines of one document that are held, and so the memory that it takes: some 20 MB."""

UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]

_SPACE: Final = 0x20
_LINE_FEED: Final = 0x0A
_HASH: Final = 0x23
_FULL_STOP: Final = 0x2E
_ELLIPSIS: Final = 0x2026
_START: Final = np.uint64(0x4BF29CE484222325)
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)

_CHUNK_WORDS: Final = 2_048
"""Words that are cut ahead: few enough that what is known of them stays in the processor's nearest cache."""

# What the line and the run that are being read hold so far, 0 for nothing yet.
_BEGUN, _BULLETED = 1, 2
_LETTERLESS, _ALPHABETIC = 1, 2
# What one chunk of words hands on to the next: words and lines that are held, characters so far and where the line
# began, the line, whether it ends in an ellipsis, full stops in a row, the run, whether a paragraph begins, whether no
# more is held, where in the text the held part ends, and the number of the line.
_HELD, _HELD_LINES, _CHARS, _LINE_START, _LINE, _TAIL, _DOTS, _RUN, _AFTER_BLANK, _FULL, _REST, _KEY = range(12)
_STATE: Final = 12

_FLAT: Final[Mapping[str, type[np.generic]]] = {
    "words": np.uint64,
    "before": np.int32,
    "lines": np.uint64,
    "line_chars": np.int32,
}

TYPE: Final = pa.struct(
    {"counts": pa.list_(pa.int64(), COUNTS), **dict.fromkeys(_FLAT, pa.large_binary()), "rest": pa.int64()}
)
"""The scan of a document, see ``Words``. Lists are bytes, because Arrow takes rows of lists an item at a time."""


@dataclass(frozen=True)
class Words:
    """What is known of n documents. Rows of a flat array are those from ``starts[i]`` to ``starts[i + 1]``.

    Of a document over ``MAX_WORDS`` words or lines the first so many are held; the counts are of all.

    Attributes:
        counts: int64 of shape (n, COUNTS).
        words: the hashes of the words, flat uint64; ``word_starts`` int64 of shape (n + 1,).
        before: the characters before each word, and before the end: flat int32, one more a document than it has words.
        lines: a number of each line, the same for the same lines: flat uint64; ``line_starts`` int64 of shape (n + 1,).
        line_chars: characters of each line, flat int32; negative where a paragraph begins with it.
        rest: int64 of shape (n,): bytes into the text after which its words are not held.
    """

    counts: Int64s
    words: UInt64s
    word_starts: Int64s
    before: Int32s
    lines: UInt64s
    line_starts: Int64s
    line_chars: Int32s
    rest: Int64s

    @classmethod
    def of(cls, scan: pa.StructArray) -> Words:
        """Return what the column of the scan holds, without copying the flat arrays."""
        counts, *lists, rest = scan.flatten()
        flat = [_flat(one, kind) for one, kind in zip(lists, _FLAT.values(), strict=True)]
        (words, word_starts), (before, _), (lines, line_starts), (line_chars, _) = flat
        shaped = _numpy(counts.flatten()).reshape(-1, COUNTS)
        return cls(shaped, words, word_starts, before, lines, line_starts, line_chars, _numpy(rest))


def _flat(lists: pa.LargeBinaryArray, kind: type[np.generic]) -> tuple[npt.NDArray[Any], Int64s]:
    """Return the values of n lists of numbers, and where each begins and the last one ends."""
    _, offsets, data = lists.buffers()
    size = np.dtype(kind).itemsize
    starts = np.zeros(1, np.int64)
    if len(lists):
        starts = np.frombuffer(offsets, np.int64)[lists.offset : lists.offset + len(lists) + 1] // size
    values = np.frombuffer(data if data is not None else b"", kind)
    return argument(values[starts[0] : starts[-1]]), argument(starts - starts[0])


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    return argument(array.to_numpy())


def scan_words(text: pa.Array) -> pa.StructArray:
    """Return the scan of every document of a string array, in ``TYPE``; null counts as empty."""
    data, bounds = utf8_buffers(text.fill_null("") if text.null_count else text)
    sizes = np.diff(bounds)
    # A word takes two bytes, what separates it from the next included, and so does a line.
    starts = np.concatenate(([0], np.cumsum(np.minimum(sizes // 2 + 1, MAX_WORDS))))
    total, rows = int(starts[-1]), len(text)
    words, before = _room(total, np.uint64), _room(total + rows, np.int32)
    lines, line_chars = _room(total, np.uint64), _room(total, np.int32)
    counts, held = np.zeros((rows, COUNTS), np.int64), np.zeros((3, rows + 1), np.int64)
    tables = character_table(), byte_terms(), base_powers()
    _scan(data, bounds, tables, MAX_WORDS, words, before, lines, line_chars, counts, held)
    before_starts = held[0] + np.arange(rows + 1)
    flat = ((held[0], words), (before_starts, before), (held[1], lines), (held[1], line_chars))
    columns = [
        pa.FixedSizeListArray.from_arrays(pa.array(counts.reshape(-1)), COUNTS),
        *(_lists(starts, values) for starts, values in flat),
        pa.array(held[2, 1:]),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(TYPE))


def _room(count: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    # From Arrow's pool, which keeps its pages: those of a fresh array cost a fault each.
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


def _lists(starts: Int64s, values: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(starts * values.itemsize), pa.py_buffer(values[: starts[-1]])]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


@kernel
def _scan(
    data: UInt8s,
    bounds: Int64s,
    tables: tuple[UInt32s, UInt64s, UInt64s],
    most: int,
    words: UInt64s,
    before: Int32s,
    lines: UInt64s,
    line_chars: Int32s,
    counts: Int64s,
    held: Int64s,
) -> None:
    """Fill the flat arrays one document after another, ``counts``, and ``held``: (word starts, line starts, rests)."""
    table, terms, powers = tables
    hashes, ends = np.empty(_CHUNK_WORDS, np.uint64), np.empty(_CHUNK_WORDS, np.int64)
    starts, notes = np.empty(_CHUNK_WORDS, np.int64), np.empty(_CHUNK_WORDS, np.int64)
    state = np.empty(_STATE, np.int64)
    for row in range(len(counts)):
        at, end = bounds[row], bounds[row + 1]
        word, line = held[0, row], held[1, row]
        count, own_before, own_lines, own_chars = counts[row], before[word + row :], lines[line:], line_chars[line:]
        state[:] = 0
        state[_AFTER_BLANK], state[_REST], state[_KEY] = 1, end, _START
        while at < end:
            start = at
            at, cut = cut_words(data, at, end, table, terms, powers, hashes, starts, ends, notes)
            found = hashes[:cut], starts[:cut], ends[:cut], notes[:cut]
            _count_words(notes[:cut], count)
            _read(data, start, at, table, found, most, state, words[word:], own_before, own_lines, own_chars, count)
        count[LETTERLESS_RUNS] += state[_RUN] == _LETTERLESS
        count[LINES] += state[_LINE] != 0
        count[BULLET_LINES] += state[_LINE] == _BULLETED
        count[ELLIPSIS_LINES] += state[_TAIL]
        if state[_HELD_LINES] < most and not state[_FULL] and state[_CHARS] > state[_LINE_START]:
            size = state[_CHARS] - state[_LINE_START]
            own_lines[state[_HELD_LINES]] = mix(np.uint64(state[_KEY]))
            own_chars[state[_HELD_LINES]] = -size if state[_AFTER_BLANK] else size
            state[_HELD_LINES] += 1
        own_before[state[_HELD]] = state[_CHARS]
        held[0, row + 1], held[1, row + 1] = word + state[_HELD], line + state[_HELD_LINES]
        held[2, row + 1] = state[_REST] - bounds[row]


@subkernel
def _count_words(notes: Int64s, counts: Int64s) -> None:
    spaced = characters = alphabetic = 0
    for note in notes:
        is_spaced = note & UNSPACED_WORD == 0
        spaced += is_spaced
        characters += (note & CHARACTERS) * is_spaced
        alphabetic += note & ALPHABETIC_WORD != 0
    counts[WORDS] += len(notes)
    counts[SPACED] += spaced
    counts[SPACED_CHARS] += characters
    counts[ALPHABETIC_WORDS] += alphabetic


@subkernel
def _read(
    data: UInt8s,
    at: int,
    end: int,
    table: UInt32s,
    found: tuple[UInt64s, Int64s, Int64s, Int64s],
    most: int,
    state: Int64s,
    words: UInt64s,
    before: Int32s,
    lines: UInt64s,
    line_chars: Int32s,
    counts: Int64s,
) -> None:
    """Read ``data[at:end]``, of which the words are ``found``: hold them and the lines, and count the signs.

    One loop with its state in local variables: numba counts references to every array that is handed to a function.
    """
    hashes, starts, ends, notes = found
    held, held_lines, chars, line_start = state[_HELD], state[_HELD_LINES], state[_CHARS], state[_LINE_START]
    line, tail, dots, run = state[_LINE], state[_TAIL], state[_DOTS], state[_RUN]
    is_after_blank, is_full, key = state[_AFTER_BLANK], state[_FULL], np.uint64(state[_KEY])
    signs = number_signs = ellipses = letterless = line_count = bullets = ellipsis_lines = np.int64(0)
    for word in range(len(ends) + 1):
        is_word = word < len(ends)
        stop = int(starts[word]) if is_word else end
        if stop == at + 1 and data[np.uint64(at)] == _SPACE:
            letterless += run == _LETTERLESS
            run = dots = np.int64(0)
            at = stop
        while at < stop:
            point = np.int64(data[np.uint64(at)])
            after = at + 1
            if point >= 0x80:
                point, after = decode(data, at, end)
            entry = np.int64(table[np.uint64(point)])
            at = after
            if entry & WHITESPACE:
                letterless += run == _LETTERLESS
                run = dots = np.int64(0)
                if point == _LINE_FEED:
                    line_count += line != 0
                    bullets += line == _BULLETED
                    ellipsis_lines += tail
                    line = tail = np.int64(0)
                    if not is_full:
                        size = chars - line_start
                        if size:
                            lines[held_lines], line_chars[held_lines] = mix(key), -size if is_after_blank else size
                            held_lines += 1
                            if held_lines == most:
                                is_full, state[_REST] = np.int64(1), at
                        is_after_blank = np.int64(size == 0)
                        line_start, key = chars, _START
            elif entry >> CLASS_SHIFT != IGNORED:
                if not line:
                    line = np.int64(_BULLETED if entry & BULLET else _BEGUN)
                run = max(run, _LETTERLESS)
                signs += 1
                dots = dots + 1 if point == _FULL_STOP else np.int64(0)
                tail = np.int64(dots >= 3 or point == _ELLIPSIS)
                number_signs += point == _HASH
                ellipses += point == _ELLIPSIS or (dots > 0 and dots % 3 == 0)
                if not is_full:
                    key = mix(key ^ np.uint64(point)) * _PRIME
                    chars += 1
        if is_word:
            note, at = notes[word], int(ends[word])
            line = max(line, _BEGUN)
            run = max(run, np.int64(_ALPHABETIC if note & ALPHABETIC_WORD else _LETTERLESS))
            tail = dots = np.int64(0)
            if not is_full:
                words[held], before[held] = hashes[word], chars
                held += 1
                chars += note & CHARACTERS
                key = (key ^ hashes[word]) * _PRIME
                key ^= key >> np.uint64(32)
                if held == most:
                    size = chars - line_start
                    lines[held_lines], line_chars[held_lines] = mix(key), -size if is_after_blank else size
                    held_lines += 1
                    is_full, state[_REST] = np.int64(1), at
    state[_HELD], state[_HELD_LINES], state[_CHARS], state[_LINE_START] = held, held_lines, chars, line_start
    state[_LINE], state[_TAIL], state[_DOTS], state[_RUN] = line, tail, dots, run
    state[_AFTER_BLANK], state[_FULL], state[_KEY] = is_after_blank, is_full, np.int64(key)
    counts[SIGNS] += signs
    counts[HASHES] += number_signs
    counts[ELLIPSES] += ellipses
    counts[LETTERLESS_RUNS] += letterless
    counts[LINES] += line_count
    counts[BULLET_LINES] += bullets
    counts[ELLIPSIS_LINES] += ellipsis_lines


WORD_SCAN: Final = Scan("words", ("text",), lambda batch: scan_words(batch.column("text")))
"""The scan that stages ask for."""
