"""The heuristics' measures over UTF-8 buffers, compiled: no document becomes a Python object.

One scanner cuts a document into words and lines as ``stages.text.words`` says; two kernels fold what it finds. All of
it is in this file, constants too, for the reason given in ``stages.jit``.
"""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from typing import Final

import numpy as np

from stages.jit import kernel, mix

SPACE: Final = 1
ALPHABETIC: Final = 2
ALPHANUMERIC: Final = 4
SINGLE: Final = 8
"""A letter that is a word of its own."""
JOINED: Final = 16
"""A letter of a script that writes no spaces and more than one letter a word."""
BULLET: Final = 32

TABLE_SIZE: Final = 0x20000
"""Code points in the tables; of those beyond, the Han extensions are known by range."""

WORDS, SPACED, SPACED_CHARS, ALPHABETIC_WORDS, HASHES, ELLIPSES = range(6)
LINES, BULLET_LINES, ELLIPSIS_LINES, STOP_WORDS_FOUND, STORED_WORDS, STORED_LINES = range(6, 12)
COUNTS: Final = 12
REPETITION_MEASURES: Final = 13

_FNV_START: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)
_LINE_FEED: Final = 0x0A
_FULL_STOP: Final = 0x2E
_HASH: Final = 0x23
_ELLIPSIS: Final = 0x2026
_ALPHABETIC_WORD, _UNSPACED_WORD, _ELLIPSIS_TAIL = 1, 2, 4
_HAN_EXTENSION: Final = ALPHABETIC | ALPHANUMERIC | SINGLE


@kernel
def _decoded(data, i, end):
    """Return (code point, next index) at ``i`` of UTF-8 ``data``; broken input gives some code point, in bounds."""
    lead = np.uint32(data[i])
    if lead < 0x80:
        return lead, i + 1
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    code = lead & np.uint32(0xFF >> (size + 1))
    stop = min(i + size, end)
    for k in range(i + 1, stop):
        code = (code << np.uint32(6)) | np.uint32(data[k] & 0x3F)
    return code, stop


@kernel
def _kind(code, classes):
    if code < TABLE_SIZE:
        return classes[code]
    return np.uint8(_HAN_EXTENSION) if 0x20000 <= code < 0x40000 else np.uint8(0)


@kernel
def _cuts(kind, code, last_kind, last):
    """Return whether a word ends between two of its letters or digits, ``last`` and ``code``."""
    if kind & SINGLE:
        return True
    if kind & JOINED:
        pair = (np.uint64(last) << np.uint64(32)) | np.uint64(code)
        return last_kind & JOINED == 0 or mix(pair) & np.uint64(3) == 0
    return last_kind & (SINGLE | JOINED) != 0


@kernel
def read_word(data, i, end, classes, lower):
    """Read the word that starts at ``i``: (index after it, characters, flags, hash, folded hash, #s, ellipses).

    The folded hash is of the word in lower case, from its first letter or digit to its last.
    """
    length = flags = hashes = ellipses = dots = 0
    raw = folding = folded = _FNV_START
    last, last_kind = np.uint32(0), np.uint8(0)
    while i < end:
        code, after = _decoded(data, i, end)
        kind = _kind(code, classes)
        if kind & SPACE or (kind & ALPHANUMERIC and last_kind and _cuts(kind, code, last_kind, last)):
            break
        i = after
        length += 1
        raw = (raw ^ np.uint64(code)) * _FNV_PRIME
        dots = dots + 1 if code == _FULL_STOP else 0
        hashes += code == _HASH
        ellipses += code == _ELLIPSIS or (dots > 0 and dots % 3 == 0)
        flags = flags | _ELLIPSIS_TAIL if dots >= 3 or code == _ELLIPSIS else flags & ~_ELLIPSIS_TAIL
        if kind & ALPHANUMERIC or last_kind:
            folding = (folding ^ np.uint64(lower[code] if code < TABLE_SIZE else code)) * _FNV_PRIME
        if kind & ALPHANUMERIC:
            folded, last, last_kind = folding, code, kind
            flags |= _ALPHABETIC_WORD * (kind & ALPHABETIC != 0) | _UNSPACED_WORD * (kind & (SINGLE | JOINED) != 0)
    return i, length, flags, mix(raw), mix(folded), hashes, ellipses


@kernel
def _scan(data, i, end, classes, lower, words, folded, chars, line_ends, opens, counts):
    """Cut one document: fills ``words`` (hash), ``folded`` (folded hash) and ``chars`` by word; ``line_ends`` (index
    after the last word) and ``opens`` (the first of its paragraph) by line; and ``counts``."""
    counts[:] = 0
    stored = lines = 0
    line_words = bullet = tail = 0
    blank = True
    while i <= end:
        code, after = _decoded(data, i, end) if i < end else (np.uint32(_LINE_FEED), i + 1)
        kind = _kind(code, classes)
        if kind & SPACE:
            i = after
            if code != _LINE_FEED:
                continue
            if line_words:
                counts[LINES] += 1
                counts[BULLET_LINES] += bullet
                counts[ELLIPSIS_LINES] += tail
                if stored > (line_ends[lines - 1] if lines else 0):
                    line_ends[lines], opens[lines] = stored, blank
                    lines += 1
            blank = line_words == 0
            line_words = 0
            continue
        if not line_words:
            bullet = int(kind & BULLET != 0)
        line_words += 1
        i, length, flags, raw, fold, hashes, ellipses = read_word(data, i, end, classes, lower)
        tail = int(flags & _ELLIPSIS_TAIL != 0)
        spaced = int(flags & _UNSPACED_WORD == 0)
        counts[WORDS] += 1
        counts[SPACED] += spaced
        counts[SPACED_CHARS] += spaced * length
        counts[ALPHABETIC_WORDS] += flags & _ALPHABETIC_WORD
        counts[HASHES] += hashes
        counts[ELLIPSES] += ellipses
        if stored < len(words):
            words[stored], folded[stored], chars[stored] = raw, fold, length
            stored += 1
    counts[STORED_WORDS] = stored
    counts[STORED_LINES] = lines


@kernel
def count_documents(data, offsets, classes, lower, capacity, stop_words, stop_from, stop_to, out):
    """Fill ``out``, int64 of shape (rows, COUNTS). The stop words of a row are ``stop_words[stop_from:stop_to]``."""
    words, folded = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    chars, line_ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    opens = np.empty(capacity, np.bool_)
    for row in range(len(out)):
        counts = out[row]
        _scan(data, offsets[row], offsets[row + 1], classes, lower, words, folded, chars, line_ends, opens, counts)
        found = 0
        for s in range(stop_from[row], stop_to[row]):
            for w in range(counts[STORED_WORDS]):
                if folded[w] == stop_words[s]:
                    found += 1
                    break
        counts[STOP_WORDS_FOUND] = found


@kernel
def _grouped(keys, active, first, seen, slots):
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


@kernel
def _duplicate_shares(keys, chars, total_chars, first, seen, slots):
    """Return the shares, by number and by characters, of the items that repeat an earlier one."""
    count = repeated = 0
    _grouped(keys, np.arange(len(keys)), first, seen, slots)
    for i in range(len(keys)):
        if first[i] != i:
            count += 1
            repeated += chars[i]
    return count / max(len(keys), 1), repeated / max(total_chars, 1)


@kernel
def _line_measures(words, before, line_ends, opens, first, seen, slots, out):
    """Fill ``out`` with the duplicate shares of lines and paragraphs: by number, then by characters."""
    lines, paragraphs = len(line_ends), 0
    keys, chars = np.empty((2, lines), np.uint64), np.zeros((2, lines), np.int64)
    start = 0
    for line in range(lines):
        h = _FNV_START
        for w in range(start, line_ends[line]):
            h = mix(h ^ words[w]) * _FNV_PRIME
        keys[0, line], chars[0, line] = h, before[line_ends[line]] - before[start]
        if opens[line] or line == 0:
            keys[1, paragraphs] = _FNV_START
            paragraphs += 1
        keys[1, paragraphs - 1] = mix(keys[1, paragraphs - 1] ^ h) * _FNV_PRIME
        chars[1, paragraphs - 1] += chars[0, line]
        start = line_ends[line]
    total = before[start]
    out[0], out[2] = _duplicate_shares(keys[0], chars[0], total, first, seen, slots)
    out[1], out[3] = _duplicate_shares(keys[1, :paragraphs], chars[1, :paragraphs], total, first, seen, slots)


@kernel
def _covered(active, chosen, n, before):
    """Return the characters of the words inside the n-grams at those ``active`` positions that are ``chosen``."""
    end = covered = 0
    for k in range(len(active)):
        if chosen[k]:
            i = active[k]
            covered += before[i + n] - before[max(i, end)]
            end = i + n
    return covered


@kernel
def _most_common(active, first, seen, n, before):
    """Return the first position of the n-gram that occurs most, of equals of the longest in characters."""
    best = best_seen = best_chars = 0
    for i in active:
        if first[i] == i:
            chars = before[i + n] - before[i]
            if seen[i] > best_seen or (seen[i] == best_seen and chars > best_chars):
                best, best_seen, best_chars = i, seen[i], chars
    return best


@kernel
def _ngram_measures(words, before, keys, first, seen, slots, top, duplicate):
    """Fill ``top`` and ``duplicate``, for n of 2 to 4 and of 5 to 10. An n-gram that repeats begins with an
    (n-1)-gram that repeats, so each n looks only at the positions which the one before left."""
    total = max(before[len(words)], 1)
    active = np.arange(len(words))
    keys[: len(words)] = words
    top[:], duplicate[:] = 0.0, 0.0
    for n in range(2, 11):
        active = active[active + n <= len(words)]
        for i in active:
            keys[i] = mix(keys[i] * _FNV_PRIME ^ words[i + n - 1])
        _grouped(keys, active, first, seen, slots)
        active = active[seen[first[active]] > 1]
        if not len(active):
            return
        if n <= 4:
            chosen = first[active] == _most_common(active, first, seen, n, before)
            top[n - 2] = _covered(active, chosen, n, before) / total
        else:
            duplicate[n - 5] = _covered(active, first[active] != active, n, before) / total


@kernel
def measure_documents(data, offsets, classes, lower, capacity, out):
    """Fill ``out``, float64 of shape (rows, REPETITION_MEASURES); ``capacity`` words of a document are held at most."""
    words, folded, keys = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    chars, line_ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    first, seen = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    before, opens = np.zeros(capacity + 1, np.int64), np.empty(capacity, np.bool_)
    slots = np.empty(4 * capacity + 4, np.int64)
    counts = np.empty(COUNTS, np.int64)
    for row in range(len(out)):
        _scan(data, offsets[row], offsets[row + 1], classes, lower, words, folded, chars, line_ends, opens, counts)
        stored, lines = counts[STORED_WORDS], counts[STORED_LINES]
        for w in range(stored):
            before[w + 1] = before[w] + chars[w]
        _line_measures(words, before, line_ends[:lines], opens, first, seen, slots, out[row])
        _ngram_measures(words[:stored], before, keys, first, seen, slots, out[row, 4:7], out[row, 7:])
