"""How far a document repeats itself: in lines, in paragraphs, and in n-grams of the words of ``stages.text.words``.

A line ends at a line feed; lines of white space alone separate paragraphs and do not count. Two lines are the same if
their words are and the signs between them, white space aside. Characters are counted without white space; what stands
between two words counts with the first.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.jit import kernel, mix, subkernel
from stages.text.characters import CLASS_SHIFT, IGNORED, SEPARATOR, WHITESPACE, character_table
from stages.text.utf8 import decode, utf8_buffers
from stages.text.words import CHARACTERS, TOUCHING_WORD, cut_words

MEASURES: Final = 13

MAX_WORDS: Final = 1 << 20
"""Words and lines of one document that are measured, and so the memory that it takes: about 100 MB."""

UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int64s: TypeAlias = npt.NDArray[np.int64]

_START: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
_LINE_FEED: Final = 0x0A


def measure_repetition(text: pa.Array) -> npt.NDArray[np.float64]:
    """Measure how far each document repeats itself.

    Args:
        text: string array of n documents; null counts as empty.

    Returns:
        float64 array of shape (n, MEASURES): the shares of repeated lines and paragraphs by number, the same by
        characters, the shares of characters inside the most common n-gram (n = 2, 3, 4; 0 where none occurs twice), and
        inside n-grams that occurred before (n = 5 to 10), each character counted once. Of a document over ``MAX_WORDS``
        words or lines the first so many are measured.
    """
    data, bounds = utf8_buffers(text.fill_null("") if text.null_count else text)
    # A word takes two bytes, what separates it from the next included, and so does a line.
    room = int(np.diff(bounds).max(initial=0)) // 2 + 1
    out = np.zeros((len(text), MEASURES), np.float64)
    _measure(data, bounds, character_table(), min(room, MAX_WORDS), out)
    return out


@kernel
def _measure(
    data: npt.NDArray[np.uint8],
    bounds: Int64s,
    table: npt.NDArray[np.uint32],
    capacity: int,
    out: npt.NDArray[np.float64],
) -> None:
    """Fill ``out``, of shape (rows, MEASURES); at most ``capacity`` words and lines of a document are held."""
    words, keys = np.empty(capacity + 1, np.uint64), np.empty(capacity, np.uint64)
    ends, notes = np.empty(capacity + 1, np.int64), np.empty(capacity + 1, np.int64)
    before, chars = np.empty(capacity + 1, np.int64), np.empty(capacity, np.int64)
    opens = np.empty(capacity, np.bool_)
    first, seen = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    slots = np.empty(4 * capacity + 4, np.int64)
    for row in range(len(out)):
        end, count = cut_words(data, bounds[row], bounds[row + 1], table, words, ends, notes)
        if count > capacity or end < bounds[row + 1]:
            count, end = capacity, int(ends[capacity - 1])
        cut = words[:count], ends[:count], notes[:count]
        count, lines = _scan(data, bounds[row], end, table, cut, before, keys, chars, opens)
        _measure_lines(keys[:lines], chars[:lines], opens, before[count], first, seen, slots, out[row])
        _measure_ngrams(words[:count], before, keys, first, seen, slots, out[row, 4:7], out[row, 7:])


@subkernel
def _scan(
    data: npt.NDArray[np.uint8],
    at: int,
    end: int,
    table: npt.NDArray[np.uint32],
    cut: tuple[UInt64s, Int64s, Int64s],
    before: Int64s,
    keys: UInt64s,
    chars: Int64s,
    opens: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """Read the words that were ``cut`` from ``data[at:end]``, and the signs between them.

    Fills ``before`` (the characters before each word, and before the end); and by line ``keys``, ``chars``, and
    ``opens`` (whether a paragraph begins with it).

    Returns:
        the number of words and of lines: of all, or of those before ``chars`` is full.
    """
    words, ends, notes = cut
    count = len(words)
    characters = line_start = lines = 0
    key = _START
    is_after_blank = True
    for word in range(count + 1):
        is_word = word < count
        while at < end and not (is_word and notes[word] & TOUCHING_WORD):
            point, after = decode(data, at, end)
            entry = np.int64(table[np.uint64(point)])
            kind = entry >> CLASS_SHIFT
            if kind != SEPARATOR and kind != IGNORED:
                break
            at = after
            if point == _LINE_FEED:
                if characters > line_start:
                    if lines == len(chars):
                        before[word] = line_start
                        return word, lines
                    keys[lines], chars[lines], opens[lines] = key, characters - line_start, is_after_blank
                    lines += 1
                is_after_blank = characters == line_start
                line_start, key = characters, _START
            elif not entry & WHITESPACE and kind != IGNORED:
                key = mix(key ^ np.uint64(point)) * _PRIME
                characters += 1
        before[word] = characters
        if is_word:
            key = mix(key ^ words[word]) * _PRIME
            characters += notes[word] & CHARACTERS
            at = ends[word]
    if characters > line_start and lines < len(chars):
        keys[lines], chars[lines], opens[lines] = key, characters - line_start, is_after_blank
        lines += 1
    return count, lines


@subkernel
def _group(keys: UInt64s, active: Int64s, first: Int64s, seen: Int64s, slots: Int64s) -> None:
    """Group the positions ``active`` by key: ``first[i]`` is the first position with the key of i, ``seen[first]`` the
    number of them. ``slots`` is scratch of a power of two over twice their number."""
    size = 4
    while size < 2 * len(active):
        size *= 2
    slots[:size] = -1
    for i in active:
        slot = np.int64(keys[i] & np.uint64(size - 1))
        while slots[slot] >= 0 and keys[slots[slot]] != keys[i]:
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = i
            seen[i] = 0
        first[i] = slots[slot]
        seen[slots[slot]] += 1


@subkernel
def _duplicate_shares(
    keys: UInt64s, chars: Int64s, total: int, first: Int64s, seen: Int64s, slots: Int64s
) -> tuple[float, float]:
    """Return the shares, by number and by characters, of the items that repeat an earlier one."""
    count = repeated = 0
    _group(keys, np.arange(len(keys)), first, seen, slots)
    for i in range(len(keys)):
        if first[i] != i:
            count += 1
            repeated += chars[i]
    return count / max(len(keys), 1), repeated / max(total, 1)


@subkernel
def _measure_lines(
    keys: UInt64s,
    chars: Int64s,
    opens: npt.NDArray[np.bool_],
    total: int,
    first: Int64s,
    seen: Int64s,
    slots: Int64s,
    out: npt.NDArray[np.float64],
) -> None:
    """Fill ``out[:4]`` with the duplicate shares of lines and paragraphs: by number, then by characters."""
    out[0], out[2] = _duplicate_shares(keys, chars, total, first, seen, slots)
    # Paragraphs take the place of their lines: there are no more of them.
    blocks = 0
    for line in range(len(keys)):
        key, size = keys[line], chars[line]
        if opens[line] or line == 0:
            keys[blocks], chars[blocks] = _START, 0
            blocks += 1
        keys[blocks - 1] = mix(keys[blocks - 1] ^ key) * _PRIME
        chars[blocks - 1] += size
    out[1], out[3] = _duplicate_shares(keys[:blocks], chars[:blocks], total, first, seen, slots)


@subkernel
def _covered(active: Int64s, chosen: npt.NDArray[np.bool_], n: int, before: Int64s) -> int:
    """Return the characters of the words inside the n-grams at those ``active`` positions that are ``chosen``."""
    end = covered = 0
    for k in range(len(active)):
        if chosen[k]:
            i = active[k]
            covered += before[i + n] - before[max(i, end)]
            end = i + n
    return covered


@subkernel
def _most_common(active: Int64s, first: Int64s, seen: Int64s, n: int, before: Int64s) -> int:
    """Return the first position of the n-gram that occurs most, of equals of the longest in characters."""
    best = best_seen = best_chars = 0
    for i in active:
        if first[i] == i:
            chars = before[i + n] - before[i]
            if seen[i] > best_seen or (seen[i] == best_seen and chars > best_chars):
                best, best_seen, best_chars = i, seen[i], chars
    return best


@subkernel
def _measure_ngrams(
    words: UInt64s,
    before: Int64s,
    keys: UInt64s,
    first: Int64s,
    seen: Int64s,
    slots: Int64s,
    top: npt.NDArray[np.float64],
    duplicate: npt.NDArray[np.float64],
) -> None:
    """Fill ``top`` and ``duplicate``, for n of 2 to 4 and of 5 to 10. An n-gram that repeats begins with an
    (n-1)-gram that repeats, so each n looks only at the positions which the one before left."""
    total = max(before[len(words)], 1)
    active = np.arange(len(words))
    keys[: len(words)] = words
    for n in range(2, 11):
        active = active[active + n <= len(words)]
        for i in active:
            keys[i] = mix(keys[i] * _PRIME ^ words[i + n - 1])
        _group(keys, active, first, seen, slots)
        active = active[seen[first[active]] > 1]
        if not len(active):
            return
        if n <= 4:
            chosen = first[active] == _most_common(active, first, seen, n, before)
            top[n - 2] = _covered(active, chosen, n, before) / total
        else:
            duplicate[n - 5] = _covered(active, first[active] != active, n, before) / total
