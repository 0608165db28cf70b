"""The one normalisation of text for n-gram language models: fitting and scoring must see the same tokens."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stages.jit import argument, kernel

SCHEME: Final = "nfkc-lower-digit0-wordpunct_v1"
"""Name of this normalisation, in the digest of a fitted model. Other tokens for some text: another name."""

MAX_LINE_TOKENS: Final = 10_000
"""Most tokens in one sentence; a longer input line becomes several, so that no line holds a whole page of tokens."""

_BLOCK_CHARS = 1 << 16
_SEPARATOR, _SYMBOL, _WORD, _DIGIT = range(4)
_LINE_FEED = 0x0A
_SPACE = 0x20
_ZERO = 0x30
# Beyond are only characters that no Unicode version has assigned, tags and private use: none is a letter or a space.
_LETTERS_END = 0x32400

# NUL ends a C string inside KenLM and half a surrogate pair has no UTF-8: both become a space.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")

# Every character that takes part in canonical reordering is outside \w, apart from two of the same combining class.
# CPython reorders a run of them by insertion sort: 80,000 alternating marks cost 3 s. No script stacks marks this high:
# Unicode's stream-safe text format (UAX #15) allows 30.
_RUN = 64
_MARK_RUN = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){64,}")


def lm_lines(text: str) -> list[str]:
    """Return ``text`` as sentences for a language model: space-separated tokens, one string per non-empty line.

    NFKC, lower case, every decimal digit to ``0``, tokens by ``\\w+|[^\\w\\s]``. An input line of more than
    ``MAX_LINE_TOKENS`` tokens is given in pieces of that many. NUL and unpaired surrogates count as white space; a run
    of 64 or more characters that are neither word, white space nor ASCII is normalised in pieces of 64. Work and memory
    grow linearly with the text.
    """
    return list(iter_lm_lines(text))


def iter_lm_lines(text: str) -> Iterator[str]:
    """Yield what ``lm_lines`` gives, line by line; no more of the text than some 64 k characters is worked on ahead."""
    lines = text.splitlines()
    start = size = 0
    for end, line in enumerate(lines, 1):
        size += len(line)
        if size >= _BLOCK_CHARS or end == len(lines):
            yield from _tokenised(lines[start:end])
            start, size = end, 0


def _tokenised(lines: Sequence[str]) -> list[str]:
    block = "\n".join(lines)
    if not block.isascii():
        clean = _NOT_TEXT.sub(" ", block).split("\n")
        block = "\n".join(line if line.isascii() else _nfkc(line) for line in clean)
    data = np.frombuffer(block.lower().encode(), np.uint8)
    # A symbol takes a byte and its space another, so text at most doubles; and no line is shorter than its end.
    out = np.empty(2 * len(data) + 1, np.uint8)
    size = _cut(argument(data), _character_classes(), out)
    return out[:size].tobytes().decode().split("\n")[:-1]


@functools.cache
def _character_classes() -> npt.NDArray[np.uint8]:
    """Return the class of every code point up to ``_LETTERS_END``: ``\\d``, other ``\\w``, ``\\s`` or NUL, the rest."""
    classes = np.full(_LETTERS_END, _SYMBOL, np.uint8)
    for point in range(_LETTERS_END):
        char = chr(point)
        if char.isdecimal():
            classes[point] = _DIGIT
        elif char.isalnum() or char == "_":
            classes[point] = _WORD
        elif char.isspace() or point == 0:
            classes[point] = _SEPARATOR
    classes.flags.writeable = False
    return classes


@kernel
def _cut(data: npt.NDArray[np.uint8], classes: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> int:
    """Copy the tokens of UTF-8 ``data`` with a space between them and a line feed after each line that has any."""
    count = tokens = 0
    last = np.int64(_SEPARATOR)
    at, end = 0, len(data)
    while at < end:
        lead = np.int64(data[at])
        if lead == _LINE_FEED:
            if tokens:
                out[count] = _LINE_FEED
                count += 1
            tokens = 0
            last = np.int64(_SEPARATOR)
            at += 1
            continue
        length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        point = lead if lead < 0x80 else lead & (0x7F >> length)
        for step in range(1, length):
            point = point << 6 | np.int64(data[at + step] & 0x3F)
        kind = np.int64(classes[point]) if point < _LETTERS_END else np.int64(_SYMBOL)
        if kind != _SEPARATOR:
            if kind == _SYMBOL or last < _WORD:
                if tokens:
                    out[count] = _LINE_FEED if tokens == MAX_LINE_TOKENS else _SPACE
                    count += 1
                    tokens = 0 if tokens == MAX_LINE_TOKENS else tokens
                tokens += 1
            if kind == _DIGIT:
                out[count] = _ZERO
                count += 1
            else:
                for step in range(length):
                    out[count] = data[at + step]
                    count += 1
        last = kind
        at += length
    if tokens:
        out[count] = _LINE_FEED
        count += 1
    return count


def _nfkc(line: str) -> str:
    if unicodedata.is_normalized("NFKC", line):
        return line
    parts, done = [], 0
    for run in _MARK_RUN.finditer(line):
        # The character before the run may combine with its first mark, so it belongs to the run's first piece.
        start = max(run.start() - 1, done)
        parts.append(unicodedata.normalize("NFKC", line[done:start]))
        parts += [
            unicodedata.normalize("NFKC", line[at : min(at + _RUN, run.end())]) for at in range(start, run.end(), _RUN)
        ]
        done = run.end()
    parts.append(unicodedata.normalize("NFKC", line[done:]))
    return "".join(parts)
