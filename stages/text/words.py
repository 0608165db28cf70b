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

import functools
from typing import Final

import numpy as np
import numpy.typing as npt

from stages.jit import argument, kernel, mix, subkernel
from stages.text.blocks import BLOCK, letters, load, not_ascii, sum_of_terms, trailing_zeros, word_bytes
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
CHARACTERS: Final = (1 << 60) - 1
"""What ``cut_words`` notes of a word: whether a letter is in it; whether it is of a script that writes no spaces; in
the bits of CHARACTERS their number."""

_SEED: Final = np.uint64(0x243F6A8885A308D3)
_BASE: Final = np.uint64(0xD6E8FEB86659FD93)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_ONES: Final = np.uint64((1 << 64) - 1)


_SHORT: Final = 8
"""Bytes of a word that are hashed at once."""


def word_hashes(text: str) -> npt.NDArray[np.uint64]:
    """Return the hashes of the words of ``text``, in order, as uint64."""
    data = np.frombuffer(text.encode(), np.uint8)
    words = np.empty(len(data) // 2 + 2, np.uint64)
    return words[: _hash_words(argument(data), character_table(), byte_terms(), base_powers(), words)]


@kernel
def _hash_words(
    data: npt.NDArray[np.uint8],
    table: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint64],
    powers: npt.NDArray[np.uint64],
    words: npt.NDArray[np.uint64],
) -> int:
    return hash_words(data, 0, len(data), table, terms, powers, words)


@functools.cache
def byte_terms() -> npt.NDArray[np.uint64]:
    """Return what a letter of ASCII adds to its word's hash with k bytes behind it, at ``k << 8 | byte``; uint64."""
    lower = character_table()[:256].astype(np.uint64) & np.uint64(LOWER_CASE)
    # Bytes that are not part of the word are masked to zero.
    lower[0] = 0
    terms = (lower[None, :] * base_powers()[:_SHORT, None]).reshape(-1)
    terms.flags.writeable = False
    return terms


@functools.cache
def base_powers() -> npt.NDArray[np.uint64]:
    """Return the powers of the base of word hashes from 0 to the size of a block, uint64."""
    powers = np.ones(BLOCK + 1, np.uint64)
    powers[1:] = _BASE
    powers = np.multiply.accumulate(powers)
    powers.flags.writeable = False
    return powers


@subkernel
def hash_words(
    data: npt.NDArray[np.uint8],
    at: int,
    end: int,
    table: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint64],
    powers: npt.NDArray[np.uint64],
    words: npt.NDArray[np.uint64],
) -> int:
    """Write the hashes of the words of ``data[at:end]``, those that ``cut_words`` gives, and return their number.

    Args:
        data: UTF-8.
        at: where to begin, not inside a word.
        end: where the text ends.
        table: ``character_table()``.
        terms: ``byte_terms()``.
        powers: ``base_powers()``.
        words: has a slot for every second byte of the text, and two more.
    """
    count = np.int64(0)
    kind = letter = np.int64(SEPARATOR)
    state = _SEED
    # A block is read whole, and eight bytes up to where a word ends: both must lie in the buffer.
    last = len(data) - BLOCK
    while at < end:
        if data[np.uint64(at)] < 0x80:
            if kind > LETTER:
                count += 1
                kind, state = np.int64(SEPARATOR), _SEED
            if _SHORT <= at <= last and load(data, at) & _HIGH_BITS == 0:
                size = min(end - at, trailing_zeros(not_ascii(data, at)))
                letters = word_bytes(data, at) & (_ONES >> np.uint64(BLOCK - size))
                if kind & ~letters & 1:
                    count += 1
                    state = _SEED
                rest = letters
                while rest:
                    start = trailing_zeros(rest)
                    length = trailing_zeros(~(rest >> np.uint64(start)))
                    stop = start + length
                    # First what is over eights: eight bytes up to its end, those before it masked to zero.
                    place = at + start + (length & (_SHORT - 1))
                    unused = np.uint64(8 * (-length & (_SHORT - 1)))
                    chunk = load(data, place - _SHORT) >> unused << unused
                    if length & (_SHORT - 1):
                        state = state * powers[np.uint64(length & (_SHORT - 1))] + sum_of_terms(chunk, terms)
                    while place < at + stop:
                        state = state * powers[np.uint64(_SHORT)] + sum_of_terms(load(data, place), terms)
                        place += _SHORT
                    words[np.uint64(count)] = state
                    # Adding the lowest bit of a run carries past its highest.
                    rest &= rest + (rest & -rest)
                    if stop < size:
                        count += 1
                        state = _SEED
                kind = np.int64(letters >> np.uint64(size - 1) & np.uint64(1))
                at += size
                continue
            stop = min(end, at + _SHORT)
            while at < stop:
                point = np.int64(data[np.uint64(at)])
                if point >= 0x80:
                    break
                at += 1
                entry = np.int64(table[np.uint64(point)])
                its = entry >> CLASS_SHIFT
                count += kind & ~its
                is_letter = np.uint64(-its)
                state = ((state * _BASE + np.uint64(entry & LOWER_CASE)) & is_letter) | (_SEED & ~is_letter)
                words[np.uint64(count)] = state
                kind = its
            continue
        point, at = decode(data, at, end)
        entry = np.int64(table[np.uint64(point)])
        its = entry >> CLASS_SHIFT
        if its == IGNORED:
            continue
        is_new, letter = _begins(its, kind, letter, point)
        if is_new:
            count += kind != SEPARATOR
            kind, state = np.int64(LETTER) if its == MARK else its, _SEED
        if kind != SEPARATOR:
            state = state * _BASE + np.uint64(entry & LOWER_CASE)
            words[np.uint64(count)] = state
    count += kind != SEPARATOR
    for word in range(np.uint64(count)):
        words[word] = mix(words[word])
    return int(count)


@subkernel
def _begins(its: np.int64, kind: np.int64, letter: np.int64, point: np.int64) -> tuple[bool, np.int64]:
    """Return whether a character that is not passed over begins a word or ends one, and the last letter of a JOINED.

    Args:
        its: the character's class.
        kind: the class of the word that is open, SEPARATOR where none is.
        letter: the last letter of a script whose letters are JOINED.
        point: the character.
    """
    if its == LETTER:
        return kind != LETTER, letter
    if its == MARK:
        return kind == SEPARATOR, letter
    if its == JOINED:
        return kind != JOINED or _cuts(letter, point), point
    return True, letter


@subkernel
def cut_words(
    data: npt.NDArray[np.uint8],
    at: int,
    end: int,
    table: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint64],
    powers: npt.NDArray[np.uint64],
    words: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    notes: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Cut ``data[at:end]`` into words until it ends or no more than one slot of ``words`` is free.

    Args:
        data: UTF-8.
        at: where to begin, not inside a word.
        end: where the text ends.
        table: ``character_table()``.
        terms: ``byte_terms()``.
        powers: ``base_powers()``.
        words: filled with the hash of every word, the same for the same words; at least two slots.
        starts: filled with where every word begins.
        ends: filled with where every word ends.
        notes: filled with ``ALPHABETIC_WORD``, ``UNSPACED_WORD``, ``TOUCHING_WORD`` and the number of characters.

    Returns:
        where the next call begins (``end`` if nothing is left), and the number of words.
    """
    last, last_block = len(words) - 1, len(data) - BLOCK
    count = np.int64(0)
    kind = note = letter = np.int64(SEPARATOR)
    state, begin = _SEED, np.int64(at)
    while at < end and count < last:
        if data[np.uint64(at)] < 0x80:
            if kind > LETTER:
                count += 1
                kind, state = np.int64(SEPARATOR), _SEED
            if _SHORT <= at <= last_block and count < last - BLOCK and load(data, at) & _HIGH_BITS == 0:
                size = min(end - at, trailing_zeros(not_ascii(data, at)))
                runs = word_bytes(data, at) & (_ONES >> np.uint64(BLOCK - size))
                alphabetic = letters(data, at)
                if kind & ~runs & 1:
                    count += 1
                    kind = np.int64(SEPARATOR)
                if kind == SEPARATOR:
                    state, note, begin = _SEED, np.int64(0), at + trailing_zeros(runs)
                rest = runs
                while rest:
                    start = trailing_zeros(rest)
                    length = trailing_zeros(~(rest >> np.uint64(start)))
                    stop = start + length
                    # As ``hash_words`` does.
                    place = at + start + (length & (_SHORT - 1))
                    unused = np.uint64(8 * (-length & (_SHORT - 1)))
                    chunk = load(data, place - _SHORT) >> unused << unused
                    if length & (_SHORT - 1):
                        state = state * powers[np.uint64(length & (_SHORT - 1))] + sum_of_terms(chunk, terms)
                    while place < at + stop:
                        state = state * powers[np.uint64(_SHORT)] + sum_of_terms(load(data, place), terms)
                        place += _SHORT
                    after = rest + (rest & -rest)
                    has_letter = np.int64(rest & ~after & alphabetic != 0)
                    note = (note + length) | has_letter * ALPHABETIC_WORD
                    slot = np.uint64(count)
                    words[slot] = state
                    starts[slot], ends[slot], notes[slot] = begin, at + stop, note
                    rest &= after
                    if stop < size:
                        count += 1
                        state, note, begin = _SEED, np.int64(0), at + trailing_zeros(rest)
                kind = np.int64(runs >> np.uint64(size - 1) & np.uint64(1))
                at += size
                continue
            # A character ends one word at most.
            stop = min(end, at + min(_SHORT, int(last - count)))
            while at < stop:
                point = np.int64(data[np.uint64(at)])
                if point >= 0x80:
                    break
                begin = begin if kind else np.int64(at)
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
                note = ((note & -kind) + 1) | (entry & ALPHABETIC) << _NOTE_SHIFT
                starts[slot], ends[slot], notes[slot] = begin, at, note
                kind = its
            continue
        before = np.int64(at)
        point, at = decode(data, at, end)
        entry = np.int64(table[np.uint64(point)])
        its = entry >> CLASS_SHIFT
        if its == IGNORED:
            continue
        is_new, letter = _begins(its, kind, letter, point)
        if is_new:
            note = np.int64(0)
            count += kind != SEPARATOR
            kind, state, begin = np.int64(LETTER) if its == MARK else its, _SEED, before
            if kind != LETTER:
                note |= UNSPACED_WORD
        if kind != SEPARATOR:
            state = state * _BASE + np.uint64(entry & LOWER_CASE)
            slot = np.uint64(count)
            words[slot] = state
            note = (note + 1) | (entry & ALPHABETIC) << _NOTE_SHIFT
            starts[slot], ends[slot], notes[slot] = begin, at, note
    if kind != SEPARATOR:
        if at == end:
            count += 1
        else:
            # The word that is open is cut anew by the next call.
            at = int(ends[count - 1])
    for word in range(count):
        words[word] = mix(words[word])
    return at, int(count)


@subkernel
def _cuts(last: np.int64, point: np.int64) -> bool:
    """Return whether a word ends between two letters of a script without spaces."""
    return bool(mix(np.uint64(last) << np.uint64(32) | np.uint64(point)) & np.uint64(3) == 0)
