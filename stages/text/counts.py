"""What the quality heuristics count in a document: words, signs and lines.

Words are those of ``stages.text.words``; signs are all other characters that are not white space. A run is what stands
between white space; a price, a date or a row of dashes is one without a letter. A line ends at a line feed; lines of
white space alone do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.jit import argument, kernel, subkernel
from stages.text.characters import BULLET, CLASS_SHIFT, IGNORED, SEPARATOR, WHITESPACE, character_table
from stages.text.utf8 import decode, utf8_buffers
from stages.text.words import ALPHABETIC_WORD, CHARACTERS, TOUCHING_WORD, UNSPACED_WORD, cut_words, word_hashes

WORDS, SPACED, SPACED_CHARS, ALPHABETIC_WORDS, STOP_WORDS_FOUND = range(5)
SIGNS, HASHES, ELLIPSES, LETTERLESS_RUNS, LINES, BULLET_LINES, ELLIPSIS_LINES = range(5, 12)
COUNTS: Final = 12

_CHUNK_WORDS: Final = 2_048
"""Words that are cut ahead: few enough that what is known of them stays in the processor's nearest cache."""

_LINE_FEED: Final = 0x0A
_HASH: Final = 0x23
_FULL_STOP: Final = 0x2E
_ELLIPSIS: Final = 0x2026

# What the line and the run that are being read hold so far, 0 for nothing yet.
_BEGUN, _BULLETED = 1, 2
_LETTERLESS, _ALPHABETIC = 1, 2
# What one chunk of words hands on to the next: the line, whether it ends in an ellipsis, full stops in a row, the run.
_LINE, _TAIL, _DOTS, _RUN = range(4)


def count_words(
    text: pa.Array, languages: Sequence[str], stop_words: Mapping[str, Sequence[str]]
) -> npt.NDArray[np.int64]:
    """Count what the quality heuristics ask of each document.

    Args:
        text: string array of n documents; null counts as empty.
        languages: n language codes, which choose the stop words.
        stop_words: words by language code.

    Returns:
        int64 array of shape (n, COUNTS), with the columns ``WORDS`` to ``ELLIPSIS_LINES``. ``SPACED`` are the words of
        scripts that write spaces; ``STOP_WORDS_FOUND`` are distinct ones, 0 where the language has no list.
    """
    lists = {language: np.unique(word_hashes(" ".join(stop_words.get(language, ())))) for language in set(languages)}
    starts, flat = {}, [np.empty(0, np.uint64)]
    for language in sorted(lists):
        starts[language] = sum(map(len, flat))
        flat.append(lists[language])
    spans = np.array([(starts[name], starts[name] + len(lists[name])) for name in languages], np.int64).reshape(-1, 2)
    data, bounds = utf8_buffers(text.fill_null("") if text.null_count else text)
    out = np.zeros((len(text), COUNTS), np.int64)
    _count(data, bounds, character_table(), argument(np.concatenate(flat)), argument(spans), out)
    return out


@kernel
def _count(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    table: npt.NDArray[np.uint32],
    stop_words: npt.NDArray[np.uint64],
    spans: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
) -> None:
    """Add to ``out``, of shape (rows, COUNTS); the stop words of a row are those of its span."""
    words, ends = np.empty(_CHUNK_WORDS, np.uint64), np.empty(_CHUNK_WORDS, np.int64)
    notes, state = np.empty(_CHUNK_WORDS, np.int64), np.empty(4, np.int64)
    for row in range(len(out)):
        counts = out[row]
        wanted = stop_words[spans[row, 0] : spans[row, 1]]
        found = np.zeros(len(wanted), np.bool_)
        state[:] = 0
        at, end = bounds[row], bounds[row + 1]
        while at < end:
            start = at
            at, count = cut_words(data, at, end, table, words, ends, notes)
            _add_words(notes[:count], counts)
            _add_signs(data, start, at, table, ends[:count], notes, state, counts)
            _find(words[:count], wanted, found)
        counts[LETTERLESS_RUNS] += state[_RUN] == _LETTERLESS
        _add_line(state[_LINE], state[_TAIL], counts)
        counts[STOP_WORDS_FOUND] = found.sum()


@subkernel
def _add_words(notes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
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
def _find(words: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64], found: npt.NDArray[np.bool_]) -> None:
    """Set ``found`` where a word is among ``words``."""
    # A set of the lowest six bits turns most words away.
    bits = _bits_of(wanted, found)
    for word in words:
        if bits >> (word & np.uint64(63)) & np.uint64(1):
            for at in range(len(wanted)):
                if wanted[at] == word:
                    found[at] = True
                    bits = _bits_of(wanted, found)
                    break


@subkernel
def _bits_of(wanted: npt.NDArray[np.uint64], found: npt.NDArray[np.bool_]) -> np.uint64:
    bits = np.uint64(0)
    for at in range(len(wanted)):
        if not found[at]:
            bits |= np.uint64(1) << (wanted[at] & np.uint64(63))
    return bits


@subkernel
def _add_signs(
    data: npt.NDArray[np.uint8],
    at: int,
    end: int,
    table: npt.NDArray[np.uint32],
    ends: npt.NDArray[np.int64],
    notes: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
) -> None:
    """Add what stands in ``data[at:end]`` between its words, of which ``ends`` and ``notes`` are known."""
    line, tail, dots, run = state[_LINE], state[_TAIL], state[_DOTS], state[_RUN]
    for word in range(len(ends) + 1):
        is_word = word < len(ends)
        while at < end and not (is_word and notes[word] & TOUCHING_WORD):
            point, after = decode(data, at, end)
            entry = np.int64(table[np.uint64(point)])
            kind = entry >> CLASS_SHIFT
            if kind != SEPARATOR and kind != IGNORED:
                break
            at = after
            if entry & WHITESPACE:
                counts[LETTERLESS_RUNS] += run == _LETTERLESS
                run = dots = np.int64(0)
                if point == _LINE_FEED:
                    _add_line(line, tail, counts)
                    line = tail = np.int64(0)
            elif kind != IGNORED:
                if not line:
                    line = np.int64(_BULLETED if entry & BULLET else _BEGUN)
                run = max(run, _LETTERLESS)
                counts[SIGNS] += 1
                dots = dots + 1 if point == _FULL_STOP else np.int64(0)
                tail = np.int64(dots >= 3 or point == _ELLIPSIS)
                counts[HASHES] += point == _HASH
                counts[ELLIPSES] += point == _ELLIPSIS or (dots > 0 and dots % 3 == 0)
        if is_word:
            line = max(line, _BEGUN)
            run = max(run, np.int64(_ALPHABETIC if notes[word] & ALPHABETIC_WORD else _LETTERLESS))
            tail = dots = np.int64(0)
            at = ends[word]
    state[_LINE], state[_TAIL], state[_DOTS], state[_RUN] = line, tail, dots, run


@subkernel
def _add_line(line: np.int64, tail: np.int64, counts: npt.NDArray[np.int64]) -> None:
    counts[LINES] += line != 0
    counts[BULLET_LINES] += line == _BULLETED
    counts[ELLIPSIS_LINES] += tail
