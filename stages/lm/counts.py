"""Counting the n-grams of one order, in memory proportional to the distinct ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from shards.errors import UserError
from stages.jit import kernel

UNK: Final = 0
BOS: Final = 1
EOS: Final = 2
SPECIAL_WORDS: Final = ("<unk>", "<s>", "</s>")
"""Words of the ids 0, 1 and 2."""

SKIPPED_WORDS: Final = (*SPECIAL_WORDS, "<UNK>")
"""Input tokens that count as white space, as with lmplz's ``--skip_symbols``. KenLM reads ``<UNK>`` as ``<unk>``."""

MAX_WORDS: Final = (1 << 32) - 2
MAX_DISTINCT: Final = (1 << 32) - 2

_SKIP = np.uint32(0xFFFFFFFF)
_BUFFER_TOKENS = 1 << 18
_LONG_LINE_CHARS = 1 << 20
_INDEX_BITS = np.uint64(40)
_INDEX_MASK = np.uint64((1 << 40) - 1)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_EMPTY = np.uint64(0)
_WORD = re.compile(r"[^\s\0]+")


@dataclass(frozen=True, eq=False)
class NgramCounts:
    """The distinct n-grams of order ``n`` of a corpus, in suffix order: by last word id, then the one before it, ...

    Every sentence was read as n - 1 times ``<s>``, its words, ``</s>``, and every window that ends at a word or at
    ``</s>`` was counted. The counts depend neither on the order of the lines nor on how they were buffered.

    Attributes:
        words: the vocabulary by id: ``SPECIAL_WORDS``, then the rest by code point.
        ngrams: uint32 array of shape (distinct, n), word ids.
        counts: int64 array of shape (distinct,), how often each was seen.
        sentences: lines read.
        tokens: words read, without ``<s>``, ``</s>`` and ``SKIPPED_WORDS``.
    """

    words: tuple[str, ...]
    ngrams: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.int64]
    sentences: int
    tokens: int

    @property
    def order(self) -> int:
        """The number of words in each n-gram."""
        return int(self.ngrams.shape[1])


def count_ngrams(lines: Iterable[str], order: int, progress: Callable[[int], None] | None = None) -> NgramCounts:
    """Count the n-grams of ``order`` in ``lines``: one sentence per line, tokens separated by white space or NUL.

    An empty line is an empty sentence, as in lmplz. Bytes that were read with ``errors="surrogateescape"`` keep their
    value. Takes memory for the table and its sorted copy, 4 * order + 8 bytes for each distinct n-gram, 16 more while
    counting, at worst twice that when the table has just grown; and for the vocabulary and a fixed buffer.

    Args:
        lines: the sentences.
        order: words in an n-gram, at least 1.
        progress: called now and then, and at the end, with the number of lines read so far.

    Raises:
        UserError: if there is no word at all, or one that cannot be encoded as UTF-8.
    """
    vocabulary = _Vocabulary()
    table = _Table(order)
    identify = vocabulary.__getitem__
    sentences = 0
    buffer: list[int] = []
    for line in lines:
        for words in _split(line):
            buffer.extend(map(identify, words))
            if len(buffer) >= _BUFFER_TOKENS:
                table.add(buffer)
                buffer.clear()
        buffer.append(EOS)
        sentences += 1
        if progress is not None and sentences % 8192 == 0:
            progress(sentences)
    table.add(buffer)
    if progress is not None:
        progress(sentences)
    tokens = table.seen - sentences - table.skipped
    if not tokens:
        raise UserError(
            f"The corpus has no words in {sentences} lines",
            place="text for the language model",
            remedy="Use text that has at least one word",
        )
    return _in_suffix_order(vocabulary, table, sentences, tokens)


def _split(line: str) -> Iterator[list[str]]:
    """Yield the words of a line, in pieces if it is very long, so that the list of words stays small."""
    if len(line) <= _LONG_LINE_CHARS:
        yield line.split() if "\0" not in line else line.replace("\0", " ").split()
        return
    found = (match.group() for match in _WORD.finditer(line))
    while words := list(islice(found, _BUFFER_TOKENS)):
        yield words


class _Vocabulary(dict[str, int]):
    """Ids of words by first appearance; ``_SKIP`` for those that count as white space."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(SKIPPED_WORDS, int(_SKIP)))
        self.words = list(SPECIAL_WORDS)

    def __missing__(self, word: str) -> int:
        try:
            word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise UserError(
                f"The word {word!r} holds a lone surrogate, which cannot be encoded as UTF-8",
                place="text for the language model",
                remedy="Normalise the text with stages.lm.normalise.lm_lines first",
            ) from error
        number = len(self.words)
        if number > MAX_WORDS:
            raise UserError(f"More than {MAX_WORDS} distinct words", remedy="Normalise the text or take less of it")
        self.words.append(word)
        self[word] = number
        return number


class _Table:
    """An open-addressing hash table from n-grams to counts, in arrays that double when full.

    A slot holds 24 bits of the hash, and the row number plus one in 40 bits, so a probe seldom reads the wrong row.
    """

    def __init__(self, order: int) -> None:
        self.rows = np.empty((1 << 12, order), np.uint32)
        self.counts = np.zeros(1 << 12, np.int64)
        self.slots = np.zeros(1 << 13, np.uint64)
        self.context = np.full(order, BOS, np.uint32)
        self.used = self.seen = self.skipped = 0

    def add(self, token_ids: list[int]) -> None:
        tokens = np.array(token_ids, np.uint32)
        self.seen += len(tokens)
        self.skipped += int(np.count_nonzero(tokens == _SKIP))
        while len(tokens):
            self.used, done = _count(tokens, self.context, self.rows, self.counts, self.slots, self.used)
            tokens = tokens[done:]
            if self.used == len(self.rows):
                self._grow()

    def _grow(self) -> None:
        capacity = 2 * len(self.rows)
        if self.used > MAX_DISTINCT:
            raise UserError(f"More than {MAX_DISTINCT} distinct n-grams", remedy="Choose a lower order or less text")
        # One array at a time, so that only one of them is in memory twice.
        self.slots = np.zeros(2 * capacity, np.uint64)
        rows = np.empty((capacity, self.rows.shape[1]), np.uint32)
        rows[: self.used] = self.rows
        self.rows = rows
        counts = np.zeros(capacity, np.int64)
        counts[: self.used] = self.counts
        self.counts = counts
        _refill(self.rows, self.slots, self.used)


@kernel
def _hash(row: npt.NDArray[np.uint32]) -> np.uint64:
    mixed = _EMPTY
    for i in range(len(row)):
        mixed = (mixed ^ np.uint64(row[i])) * _MULTIPLIER
        mixed ^= mixed >> _SHIFT
    return mixed * _MULTIPLIER


@kernel
def _count(
    tokens: npt.NDArray[np.uint32],
    context: npt.NDArray[np.uint32],
    rows: npt.NDArray[np.uint32],
    counts: npt.NDArray[np.int64],
    slots: npt.NDArray[np.uint64],
    used: int,
) -> tuple[int, int]:
    """Count the windows that end at each of ``tokens`` until ``rows`` is full; return (rows used, tokens read)."""
    order = len(context)
    mask = np.uint64(len(slots) - 1)
    for at in range(len(tokens)):
        if used == len(rows):
            return used, at
        token = tokens[at]
        if token == _SKIP:
            continue
        for i in range(order - 1):
            context[i] = context[i + 1]
        context[order - 1] = token
        mixed = _hash(context)
        slot = (mixed >> np.uint64(20)) & mask
        tag = mixed >> _INDEX_BITS
        while True:
            held = slots[slot]
            if held == _EMPTY:
                rows[used] = context
                counts[used] = 1
                used += 1
                slots[slot] = (tag << _INDEX_BITS) | np.uint64(used)
                break
            if held >> _INDEX_BITS == tag:
                row = np.int64(held & _INDEX_MASK) - 1
                same = True
                for i in range(order):
                    if rows[row, i] != context[i]:
                        same = False
                        break
                if same:
                    counts[row] += 1
                    break
            slot = (slot + np.uint64(1)) & mask
        if token == EOS:
            context[:] = BOS
    return used, len(tokens)


@kernel
def _refill(rows: npt.NDArray[np.uint32], slots: npt.NDArray[np.uint64], used: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for row in range(used):
        mixed = _hash(rows[row])
        slot = (mixed >> np.uint64(20)) & mask
        while slots[slot] != _EMPTY:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = ((mixed >> _INDEX_BITS) << _INDEX_BITS) | np.uint64(row + 1)


def _in_suffix_order(vocabulary: _Vocabulary, table: _Table, sentences: int, tokens: int) -> NgramCounts:
    """Renumber the words by code point and sort the n-grams."""
    special = len(SPECIAL_WORDS)
    by_code_point = sorted(range(special, len(vocabulary.words)), key=vocabulary.words.__getitem__)
    words = SPECIAL_WORDS + tuple(vocabulary.words[i] for i in by_code_point)
    renumbered = np.arange(len(words), dtype=np.uint32)
    renumbered[by_code_point] = np.arange(special, len(words), dtype=np.uint32)
    vocabulary.clear()
    table.slots = np.empty(0, np.uint64)
    ngrams = renumbered[table.rows[: table.used]]
    counts = table.counts[: table.used].copy()
    table.rows, table.counts = np.empty((0, 0), np.uint32), np.empty(0, np.int64)
    order = suffix_order(ngrams)
    return NgramCounts(words, ngrams[order], counts[order], sentences, tokens)


def suffix_order(ngrams: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return the permutation, int64 (m,), that sorts distinct ``ngrams`` (m, n) by last word, then the one before."""
    bits = int(ngrams.max(initial=0)).bit_length()
    key = ngrams[:, -1].astype(np.uint64)
    used_bits = bits
    for column in range(ngrams.shape[1] - 2, -1, -1):
        if used_bits + bits > 64:
            # The ranks of what is packed so far say the same in fewer bits.
            key = np.unique(key, return_inverse=True)[1].astype(np.uint64)
            used_bits = int(key.max(initial=0)).bit_length()
        key = key << np.uint64(bits) | ngrams[:, column]
        used_bits += bits
    return np.argsort(key)
