"""The one normalisation of text for n-gram language models: fitting and scoring must see the same tokens."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Final

SCHEME: Final = "nfkc-lower-digit0-wordpunct_v1"
"""Name of this normalisation, part of every digest of a model or a score. Other tokens for some text: another name."""

MAX_LINE_TOKENS: Final = 10_000
"""Most tokens in one sentence; a longer input line becomes several, so that no line holds a whole page of tokens."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_DIGIT = re.compile(r"\d")
_ASCII_DIGITS = str.maketrans("123456789", "0" * 9)

# NUL ends a C string inside KenLM and half a surrogate pair has no UTF-8: both become a space.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")

# Every character that takes part in canonical reordering is outside \w, apart from two of the same combining class.
# CPython reorders a run of them by insertion sort: 80,000 alternating marks cost 3 s. No script stacks marks this high:
# Unicode's stream-safe text format (UAX #15) allows 30.
_RUN = 64
_MARK_RUN = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){64,}")


def lm_lines(text: str) -> list[str]:
    """Give ``text`` as sentences for a language model: space-separated tokens, one string per input line that has any.

    NFKC, lower case, every decimal digit to ``0``, tokens by ``\\w+|[^\\w\\s]``. An input line of more than
    ``MAX_LINE_TOKENS`` tokens is given in pieces of that many. NUL and unpaired surrogates count as white space; a run
    of 64 or more characters that are neither word, white space nor ASCII is normalised in pieces of 64. Work and memory
    grow linearly with the text.
    """
    return list(iter_lm_lines(text))


def iter_lm_lines(text: str) -> Iterator[str]:
    """Give what ``lm_lines`` gives, line by line."""
    for line in text.splitlines():
        clean = _normalised(line)
        if len(clean) <= MAX_LINE_TOKENS:
            tokens = _TOKEN.findall(clean)
            if tokens:
                yield " ".join(tokens)
            continue
        found = (match.group() for match in _TOKEN.finditer(clean))
        while piece := " ".join(islice(found, MAX_LINE_TOKENS)):
            yield piece


def _normalised(line: str) -> str:
    if line.isascii():
        return line.replace("\0", " ").lower().translate(_ASCII_DIGITS)
    line = _NOT_TEXT.sub(" ", line)
    return _DIGIT.sub("0", _nfkc(line).lower())


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
