"""The one normalisation of text for n-gram language models: fitting and scoring must see the same tokens."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stages.jit import argument, kernel
from stages.text.characters import CLASS_SHIFT, DECIMAL, JOINED, LETTER, SINGLE, WHITESPACE, character_table
from stages.text.utf8 import decode

SCHEME: Final = "nfkc-lower-digit0-wordpunct_v1"
"""Name of this normalisation, in the digest of a fitted model. Other tokens for some text: another name."""

MAX_LINE_TOKENS: Final = 10_000
"""Most tokens in one sentence; a longer input line becomes several, so that no line holds a whole page of tokens."""

_BLOCK_CHARS = 1 << 16
_LINE_FEED = 0x0A
_SPACE = 0x20
_ZERO = 0x30

# NUL ends a C string inside KenLM and half a surrogate pair has no UTF-8: both become a space.
_SURROGATE = re.compile("[\ud800-\udfff]")

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
    for line in iter_lm_bytes(text):
        yield line.decode()


def iter_lm_bytes(text: str) -> Iterator[bytes]:
    """Yield what ``iter_lm_lines`` yields, as UTF-8."""
    lines = text.splitlines()
    start = size = 0
    for end, line in enumerate(lines, 1):
        size += len(line)
        if size >= _BLOCK_CHARS or end == len(lines):
            yield from _tokenised(lines[start:end])
            start, size = end, 0


def _tokenised(lines: Sequence[str]) -> list[bytes]:
    try:
        block = _lower(lines)
    except UnicodeEncodeError:
        # Texts from a table have no half of a surrogate pair, so they are not searched for one.
        block = _lower([_SURROGATE.sub(" ", line) for line in lines])
    data = np.frombuffer(block, np.uint8)
    # A symbol takes a byte and its space another, so text at most doubles; and no line is shorter than its end.
    out = np.empty(2 * len(data) + 1, np.uint8)
    size = _cut(argument(data), character_table(), out)
    return out[:size].tobytes().split(b"\n")[:-1]


def _lower(lines: Sequence[str]) -> bytes:
    # A line at a time: those in ASCII, which are most, are lowered many times as fast.
    return "\n".join(
        line.lower() if line.isascii() else _nfkc(line.replace("\0", " ")).lower() for line in lines
    ).encode()


@kernel
def _cut(data: npt.NDArray[np.uint8], table: npt.NDArray[np.uint32], out: npt.NDArray[np.uint8]) -> int:
    """Copy the tokens of UTF-8 ``data`` with a space between them and a line feed after each line that has any."""
    count = tokens = was_word = np.int64(0)
    at, end = 0, len(data)
    while at < end:
        point, after = np.int64(data[np.uint64(at)]), at + 1
        if point >= 0x80:
            point, after = decode(data, at, end)
        entry = np.int64(table[np.uint64(point)])
        kind = entry >> CLASS_SHIFT
        is_word = np.int64((kind == LETTER) | (kind == SINGLE) | (kind == JOINED))
        is_token = is_word | np.int64((entry & WHITESPACE == 0) & (point != 0))
        starts = is_token & ~(is_word & was_word)
        if point == _LINE_FEED or tokens + starts > MAX_LINE_TOKENS:
            out[np.uint64(count)] = _LINE_FEED
            count += tokens > 0
            tokens = np.int64(0)
        # Where tokens end cannot be predicted, so little branches on it: what is not counted is written over.
        out[np.uint64(count)] = _SPACE
        count += starts & np.int64(tokens > 0)
        tokens += starts
        if point < 0x80 or entry & DECIMAL:
            out[np.uint64(count)] = _ZERO if entry & DECIMAL else point
            count += is_token
        else:
            for byte in range(at, after):
                out[np.uint64(count)] = data[np.uint64(byte)]
                count += is_token
        was_word = is_word
        at = after
    if tokens:
        out[count] = _LINE_FEED
        count += 1
    return int(count)


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
