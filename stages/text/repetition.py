"""How far a document repeats itself: in lines, in paragraphs, and in n-grams of its words.

``stages.text.word_scan`` says what words, lines and paragraphs are; characters are counted without white space.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stages.jit import kernel, mix, subkernel
from stages.text.word_scan import Words

MEASURES: Final = 13

UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]

_START: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)


def measure_repetition(words: Words) -> npt.NDArray[np.float64]:
    """Measure how far each document repeats itself.

    Args:
        words: the scan of n documents.

    Returns:
        float64 array of shape (n, MEASURES): the shares of repeated lines and paragraphs by number, the same by
        characters, the shares of characters inside the most common n-gram (n = 2, 3, 4; 0 where none occurs twice), and
        inside n-grams that occurred before (n = 5 to 10), each character counted once. Of a document over ``MAX_WORDS``
        words or lines the first so many are measured.
    """
    out = np.zeros((len(words.rest), MEASURES), np.float64)
    most = max(np.diff(words.word_starts).max(initial=0), np.diff(words.line_starts).max(initial=0))
    flat = words.words, words.before, words.lines, words.line_chars
    _measure(flat, words.word_starts, words.line_starts, int(most), out)
    return out


@kernel
def _measure(
    flat: tuple[UInt64s, Int32s, UInt64s, Int32s],
    word_starts: Int64s,
    line_starts: Int64s,
    capacity: int,
    out: npt.NDArray[np.float64],
) -> None:
    """Fill ``out``, of shape (rows, MEASURES); no document has more words or lines than ``capacity``."""
    keys, active = np.empty(capacity, np.uint64), np.empty(capacity, np.int32)
    first, seen = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    chars, slots = np.empty(capacity, np.int64), np.empty(4 * capacity + 4, np.int32)
    met = np.empty(16 * capacity + 4, np.uint8)
    for row in range(len(out)):
        start, end = word_starts[row], word_starts[row + 1]
        before = flat[1][start + row : end + row + 1]
        first_line, last_line = line_starts[row], line_starts[row + 1]
        lines, sizes = flat[2][first_line:last_line], flat[3][first_line:last_line]
        measured, total = out[row], before[end - start]
        _measure_lines(lines, sizes, total, keys, chars, active, first, seen, slots, measured)
        _measure_ngrams(flat[0][start:end], before, keys, active, first, seen, slots, met, measured[4:7], measured[7:])


@subkernel
def _group(keys: UInt64s, active: Int32s, first: Int32s, seen: Int32s, slots: Int32s) -> None:
    """Group the positions ``active`` by key: ``first[i]`` is the first position with the key of i, ``seen[first]`` the
    number of them. ``slots`` is scratch of a power of two over twice their number."""
    size = 4
    while size < 2 * len(active):
        size *= 2
    slots[:size] = -1
    for i in active:
        key = keys[i]
        slot = np.int64(key & np.uint64(size - 1))
        held = slots[slot]
        while held >= 0 and keys[held] != key:
            slot = (slot + 1) & (size - 1)
            held = slots[slot]
        if held < 0:
            slots[slot] = held = i
            seen[i] = 0
        first[i] = held
        seen[held] += 1


@subkernel
def _leave_repeated(keys: UInt64s, active: Int32s, met: npt.NDArray[np.uint8]) -> int:
    """Fill ``active`` with the positions of keys that may occur twice, and return how many they are: all that do, and
    of the others one in eight or fewer. ``met`` is scratch of a power of two over eight times their number.

    Most words of a text begin no bigram that repeats. This tells so without a branch, from a table in the nearest
    cache.
    """
    size = 4
    while size < 8 * len(keys):
        size *= 2
    met[:size] = 0
    mask = np.uint64(size - 1)
    for key in keys:
        slot = key & mask
        met[slot] = min(met[slot] + 1, 2)
    count = 0
    for i in range(len(keys)):
        active[count] = i
        count += met[keys[i] & mask] > 1
    return count


@subkernel
def _duplicate_shares(
    keys: UInt64s, chars: Int64s, total: int, active: Int32s, first: Int32s, seen: Int32s, slots: Int32s
) -> tuple[float, float]:
    """Return the shares, by number and by characters, of the items that repeat an earlier one."""
    count = repeated = 0
    for i in range(len(keys)):
        active[i] = i
    _group(keys, active[: len(keys)], first, seen, slots)
    for i in range(len(keys)):
        if first[i] != i:
            count += 1
            repeated += chars[i]
    return count / max(len(keys), 1), repeated / max(total, 1)


@subkernel
def _measure_lines(
    lines: UInt64s,
    sizes: Int32s,
    total: int,
    keys: UInt64s,
    chars: Int64s,
    active: Int32s,
    first: Int32s,
    seen: Int32s,
    slots: Int32s,
    out: npt.NDArray[np.float64],
) -> None:
    """Fill ``out[:4]`` with the duplicate shares of lines and paragraphs: by number, then by characters."""
    for line in range(len(lines)):
        keys[line], chars[line] = lines[line], abs(sizes[line])
    count = len(lines)
    out[0], out[2] = _duplicate_shares(keys[:count], chars[:count], total, active, first, seen, slots)
    # Paragraphs take the place of their lines: there are no more of them.
    blocks = 0
    for line in range(count):
        key, size = keys[line], chars[line]
        if sizes[line] < 0 or line == 0:
            keys[blocks], chars[blocks] = _START, 0
            blocks += 1
        keys[blocks - 1] = mix(keys[blocks - 1] ^ key) * _PRIME
        chars[blocks - 1] += size
    out[1], out[3] = _duplicate_shares(keys[:blocks], chars[:blocks], total, active, first, seen, slots)


@subkernel
def _covered(active: Int32s, chosen: np.int64, first: Int32s, n: int, before: Int32s) -> int:
    """Return the characters of the words inside n-grams at ``active`` positions: inside those that are the one at
    ``chosen``, or, if that is negative, inside those that occurred before."""
    end = covered = 0
    for i in active:
        if first[i] == chosen or (chosen < 0 and first[i] != i):
            covered += before[i + n] - before[i if i > end else end]
            end = i + n
    return covered


@subkernel
def _most_common(active: Int32s, first: Int32s, seen: Int32s, n: int, before: Int32s) -> np.int64:
    """Return the first position of the n-gram that occurs most, of equals of the longest in characters."""
    best = best_seen = best_chars = np.int64(0)
    for i in active:
        if first[i] == i:
            chars = before[i + n] - before[i]
            if seen[i] > best_seen or (seen[i] == best_seen and chars > best_chars):
                best, best_seen, best_chars = np.int64(i), np.int64(seen[i]), np.int64(chars)
    return best


@subkernel
def _measure_ngrams(
    words: UInt64s,
    before: Int32s,
    keys: UInt64s,
    active: Int32s,
    first: Int32s,
    seen: Int32s,
    slots: Int32s,
    met: npt.NDArray[np.uint8],
    top: npt.NDArray[np.float64],
    duplicate: npt.NDArray[np.float64],
) -> None:
    """Fill ``top`` and ``duplicate``, for n of 2 to 4 and of 5 to 10. An n-gram that repeats begins with an
    (n-1)-gram that repeats, so each n looks only at the positions which the one before left."""
    total = max(before[len(words)], 1)
    count = len(words)
    for i in range(count):
        active[i], keys[i] = i, words[i]
    for n in range(2, 11):
        # Positions ascend, so those that are too near the end are the last.
        while count and active[count - 1] + n > len(words):
            count -= 1
        for k in range(count):
            i = active[k]
            keys[i] = mix(keys[i] * _PRIME ^ words[i + n - 1])
        if n == 2:
            count = _leave_repeated(keys[:count], active, met)
        _group(keys, active[:count], first, seen, slots)
        left = 0
        for k in range(count):
            i = active[k]
            active[left] = i
            left += seen[first[i]] > 1
        count = left
        if not count:
            return
        if n <= 4:
            chosen = _most_common(active[:count], first, seen, n, before)
            top[n - 2] = _covered(active[:count], chosen, first, n, before) / total
        else:
            duplicate[n - 5] = _covered(active[:count], np.int64(-1), first, n, before) / total
