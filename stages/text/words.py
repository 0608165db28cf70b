"""What a character, a word and a line are, for every heuristic: the tables and calls of the text kernel.

A word is a run of characters between white space, punctuation included. Scripts that write no spaces get words too:
every letter of Han, Hiragana and Katakana is one; a run of Thai, Lao, Khmer, Myanmar or Tibetan letters is cut before a
letter wherever a hash of it and the letter before it is 0 modulo 4, which gives pieces of about four letters, the
length of a word there, and the same pieces wherever the same text stands. Punctuation stays with the word it touches.

A line ends at a line feed; lines without a character other than white space separate paragraphs and are not counted.
"""
# The kernel's functions have the types that numba infers.
# mypy: disallow-untyped-calls=False

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.text import kernel as text_kernel
from stages.text.kernel import ALPHABETIC, ALPHANUMERIC, BULLET, JOINED, SINGLE, SPACE, TABLE_SIZE

MAX_STORED_WORDS: Final = 1 << 20
"""Words of one document that are kept for measures over word sequences; counts go on beyond. At most 100 MB."""

_SINGLE_RANGES: Final = ((0x3005, 0x3007), (0x3041, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF),
                         (0xF900, 0xFAFF), (0xFF66, 0xFF9F))  # fmt: skip
_JOINED_RANGES: Final = ((0x0E00, 0x0EFF), (0x0F40, 0x0FBC), (0x1000, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xA9FE),
                         (0xAA60, 0xAA7F))  # fmt: skip
_BULLETS: Final = "-*•‣⁃◦▪▫●○■□►▶–—·⦁"


@functools.cache
def character_tables() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    """Return (classes, lower), both of shape (TABLE_SIZE,): flags of each code point, and its lower-case code point."""
    classes = np.zeros(TABLE_SIZE, np.uint8)
    lower = np.arange(TABLE_SIZE, dtype=np.uint32)
    for code in range(TABLE_SIZE):
        char = chr(code)
        if char.isalnum():
            classes[code] = ALPHANUMERIC | (ALPHABETIC if char.isalpha() else 0)
            small = char.lower()
            if len(small) == 1:
                lower[code] = ord(small)
        elif char.isspace():
            classes[code] = SPACE
    for ranges, flag in ((_SINGLE_RANGES, SINGLE), (_JOINED_RANGES, JOINED)):
        for first, last in ranges:
            block = classes[first : last + 1]
            block[(block & ALPHABETIC) != 0] |= flag
    classes[[ord(char) for char in _BULLETS]] |= BULLET
    for table in (classes, lower):
        table.flags.writeable = False
    return classes, lower


def _buffers(text: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int]:
    """Return (UTF-8 bytes, offsets of shape (rows + 1,), words that scratch must hold) of ``text``; null is empty."""
    if text.null_count:
        text = text.fill_null("")
    _, offsets, data = text.buffers()
    if not len(text) or data is None:
        return np.frombuffer(b"\0", np.uint8), np.zeros(len(text) + 1, np.int64), 1
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    longest = int(np.diff(bounds).max())
    return np.frombuffer(data, np.uint8), bounds, min(longest + 1, MAX_STORED_WORDS)


def _folded_hash(word: str) -> np.uint64:
    data = np.frombuffer(word.encode(), np.uint8)
    return np.uint64(text_kernel.read_word(data, 0, len(data), *character_tables())[4])


def count_words(
    text: pa.StringArray, languages: Sequence[str], stop_words: Mapping[str, Sequence[str]]
) -> npt.NDArray[np.int64]:
    """Count what the quality heuristics ask of each document.

    Args:
        text: string array of n documents.
        languages: n language codes, which choose the stop words.
        stop_words: words by language code.

    Returns:
        int64 array of shape (n, COUNTS); its columns are the kernel's constants ``WORDS`` to ``STORED_LINES``.
        ``STOP_WORDS_FOUND`` is the number of distinct stop words, 0 where the language has no list.
    """
    spans, flat = {}, list[np.uint64]()
    for language in sorted(set(languages) & stop_words.keys()):
        start = len(flat)
        flat.extend(_folded_hash(word) for word in dict.fromkeys(stop_words[language]))
        spans[language] = (start, len(flat))
    ranges = np.array([spans.get(language, (0, 0)) for language in languages], np.int64).reshape(-1, 2)
    data, offsets, capacity = _buffers(text)
    out = np.zeros((len(text), text_kernel.COUNTS), np.int64)
    stops = np.array(flat, np.uint64)
    text_kernel.count_documents(data, offsets, *character_tables(), capacity, stops, ranges[:, 0], ranges[:, 1], out)
    return out


def measure_repetition(text: pa.StringArray) -> npt.NDArray[np.float64]:
    """Measure how far each document repeats itself, white space aside.

    Returns:
        float64 array of shape (n, REPETITION_MEASURES): the shares of repeated lines and paragraphs by number, the
        same by characters, the shares of characters inside the most common n-gram (n = 2, 3, 4; 0 where none occurs
        twice), and inside n-grams that occurred before (n = 5 to 10), each character counted once. Of a document over
        ``MAX_STORED_WORDS`` words the first so many are measured.
    """
    data, offsets, capacity = _buffers(text)
    out = np.zeros((len(text), text_kernel.REPETITION_MEASURES), np.float64)
    text_kernel.measure_documents(data, offsets, *character_tables(), capacity, out)
    return out
