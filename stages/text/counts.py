"""The stop words among the words of a document, which ``stages.text.word_scan`` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.jit import argument, kernel, subkernel
from stages.text.characters import character_table
from stages.text.utf8 import utf8_buffers
from stages.text.word_scan import Words
from stages.text.words import base_powers, byte_terms, cut_words, word_hashes

_CHUNK_WORDS: Final = 2_048
"""Words that are cut at a time of what a scan does not hold."""


def count_stop_words(
    words: Words, text: pa.Array, languages: Sequence[str], stop_words: Mapping[str, Sequence[str]]
) -> npt.NDArray[np.int64]:
    """Count the distinct stop words of each document, 0 where its language has no list.

    Args:
        words: the scan of n documents.
        text: the documents, a string array: read again where they have more words than a scan holds.
        languages: n language codes, which choose the stop words.
        stop_words: words by language code.

    Returns:
        int64 array of shape (n,).
    """
    lists = {language: np.unique(word_hashes(" ".join(stop_words.get(language, ())))) for language in set(languages)}
    starts, flat = {}, [np.empty(0, np.uint64)]
    for language in sorted(lists):
        starts[language] = sum(map(len, flat))
        flat.append(lists[language])
    spans = np.array([(starts[name], starts[name] + len(lists[name])) for name in languages], np.int64).reshape(-1, 2)
    data, bounds = utf8_buffers(text.fill_null("") if text.null_count else text)
    out = np.zeros(len(languages), np.int64)
    held = words.words, words.word_starts, words.rest
    tables = character_table(), byte_terms(), base_powers()
    _count(data, bounds, tables, held, argument(np.concatenate(flat)), argument(spans), out)
    return out


@kernel
def _count(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    tables: tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64], npt.NDArray[np.uint64]],
    held: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]],
    stop_words: npt.NDArray[np.uint64],
    spans: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
) -> None:
    """Fill ``out``; the stop words of a row are those of its span."""
    table, terms, powers = tables
    words, ends = np.empty(_CHUNK_WORDS, np.uint64), np.empty(_CHUNK_WORDS, np.int64)
    starts, notes = np.empty(_CHUNK_WORDS, np.int64), np.empty(_CHUNK_WORDS, np.int64)
    for row in range(len(out)):
        wanted = stop_words[spans[row, 0] : spans[row, 1]]
        found = np.zeros(len(wanted), np.bool_)
        _find(held[0][held[1][row] : held[1][row + 1]], wanted, found)
        at, end = bounds[row] + held[2][row], bounds[row + 1]
        while at < end:
            at, count = cut_words(data, at, end, table, terms, powers, words, starts, ends, notes)
            _find(words[:count], wanted, found)
        out[row] = found.sum()


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
