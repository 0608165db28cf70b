"""The one definition of a word, for heuristics and near-duplicates alike.

A word is a maximal run of letters, marks, numbers and ``_``: ``\\w+`` in Unicode's sense (UTS 18), in text of any
language. White space, punctuation and symbols separate words and belong to none. Two words are the same if they are the
same in lower case, character by character.

Scripts that write no spaces get words too. In Han, kana, Bopomofo and Yi every letter is one. A run of Thai, Lao,
Khmer, Myanmar or Tai letters is cut before a letter wherever a hash of it and the letter before it is 0 modulo 4: that
gives pieces of about four letters, the length of a word there, and the same pieces wherever the same text stands. Marks
stay with the letter before them. Between such a script and another a word ends.

Format characters such as a soft hyphen or a joiner are passed over, because they change neither reading nor meaning;
the zero-width space is the one that separates.

Characters are compared as they stand: who compares documents with each other composes them first (NFC). Decision 10
says what else was weighed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stages.jit import argument, kernel, mix, subkernel
from stages.text.characters import (
    ALPHABETIC,
    CLASS_SHIFT,
    IGNORED,
    JOINED,
    LETTER,
    LOWER_CASE,
    MARK,
    SEPARATOR,
    character_table,
)
from stages.text.utf8 import decode

_NOTE_SHIFT: Final = 40
ALPHABETIC_WORD: Final = ALPHABETIC << _NOTE_SHIFT
UNSPACED_WORD: Final = 1 << 61
TOUCHING_WORD: Final = 1 << 60
CHARACTERS: Final = TOUCHING_WORD - 1
"""What ``cut_words`` notes of a word: whether a letter is in it; whether it is of a script that writes no spaces;
whether it begins where the word before ends (not noted of every such word); in the bits of CHARACTERS their number."""

_SEED: Final = np.uint64(0x243F6A8885A308D3)
_BASE: Final = np.uint64(0xD6E8FEB86659FD93)


def word_hashes(text: str) -> npt.NDArray[np.uint64]:
    """Return the hashes of the words of ``text``, in order, as uint64."""
    data = np.frombuffer(text.encode(), np.uint8)
    words = np.empty(len(data) // 2 + 2, np.uint64)
    return words[: _hash_words(argument(data), character_table(), words)]


@kernel
def _hash_words(data: npt.NDArray[np.uint8], table: npt.NDArray[np.uint32], words: npt.NDArray[np.uint64]) -> int:
    return cut_words(data, 0, len(data), table, words, None, None)[1]


@subkernel
def cut_words(
    data: npt.NDArray[np.uint8],
    at: int,
    end: int,
    table: npt.NDArray[np.uint32],
    words: npt.NDArray[np.uint64],
    ends: npt.NDArray[np.int64] | None,
    notes: npt.NDArray[np.int64] | None,
) -> tuple[int, int]:
    """Cut ``data[at:end]`` into words until it ends or no more than one slot of ``words`` is free.

    Args:
        data: UTF-8.
        at: where to begin, not inside a word.
        end: where the text ends.
        table: ``character_table()``.
        words: filled with the hash of every word, the same for the same words; at least two slots.
        ends: filled with where every word ends.
        notes: filled with ``ALPHABETIC_WORD``, ``UNSPACED_WORD``, ``TOUCHING_WORD`` and the number of characters.
            None, with ``ends``, where hashes are enough; then ``words`` must have room for all.

    Returns:
        where the next call begins (``end`` if nothing is left), and the number of words.
    """
    last = len(words) - 1
    count = np.int64(0)
    kind = note = letter = np.int64(SEPARATOR)
    state = _SEED
    while at < end and count < last:
        if data[np.uint64(at)] < 0x80:
            if kind > LETTER:
                count += 1
                kind, state = np.int64(SEPARATOR), _SEED
            # A character ends one word at most.
            stop = min(end, at + int(last - count))
            while at < stop:
                point = np.int64(data[np.uint64(at)])
                if point >= 0x80:
                    break
                at += 1
                entry = np.int64(table[np.uint64(point)])
                # Letter or separator, 1 or 0. Where words end cannot be predicted, so nothing branches on it: what is
                # written for a separator is written over.
                its = entry >> CLASS_SHIFT
                count += kind & ~its
                slot = np.uint64(count)
                is_letter = np.uint64(-its)
                state = ((state * _BASE + np.uint64(entry & LOWER_CASE)) & is_letter) | (_SEED & ~is_letter)
                words[slot] = state
                if ends is not None:
                    note = ((note & -kind) + 1) | (entry & ALPHABETIC) << _NOTE_SHIFT
                    ends[slot], notes[slot] = at, note  # type: ignore[index]
                kind = its
            continue
        point, at = decode(data, at, end)
        entry = np.int64(table[np.uint64(point)])
        its = entry >> CLASS_SHIFT
        if its == IGNORED:
            continue
        if its == LETTER:
            is_new = kind != LETTER
        elif its == MARK:
            is_new = kind == SEPARATOR
        elif its == JOINED:
            is_new = kind != JOINED or _cuts(letter, point)
            letter = point
        else:
            is_new = True
        if is_new:
            note = np.int64(0 if kind == SEPARATOR else TOUCHING_WORD)
            count += kind != SEPARATOR
            kind, state = np.int64(LETTER) if its == MARK else its, _SEED
            if kind != LETTER:
                note |= UNSPACED_WORD
        if kind != SEPARATOR:
            state = state * _BASE + np.uint64(entry & LOWER_CASE)
            slot = np.uint64(count)
            words[slot] = state
            if ends is not None:
                note = (note + 1) | (entry & ALPHABETIC) << _NOTE_SHIFT
                ends[slot], notes[slot] = at, note  # type: ignore[index]
    if kind != SEPARATOR:
        if at == end:
            count += 1
        elif ends is not None:
            # The word that is open is cut anew by the next call.
            at = int(ends[count - 1])
    for word in range(count):
        words[word] = mix(words[word])
    return at, int(count)


@subkernel
def _cuts(last: np.int64, point: np.int64) -> bool:
    """Return whether a word ends between two letters of a script without spaces."""
    return bool(mix(np.uint64(last) << np.uint64(32) | np.uint64(point)) & np.uint64(3) == 0)
