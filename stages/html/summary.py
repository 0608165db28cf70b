"""What a page says of itself in its head: title, description, and JSON-LD, in which much of the main text may stand.

Which of a block's words stand there in a row of three shows that the block is what the page is about.
"""
# numba infers the types of what it compiles.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from stages.html.blocks import END, START
from stages.html.lexer import lower
from stages.jit import kernel, subkernel

_META: Final = re.compile(rb'<meta [^>]*(?:description|title)"[^>]*>')
_SCRIPT: Final = b'<script type="application/ld+json"'
_MOST_BYTES: Final = 1 << 18
_SEED: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


def summaries_of(written: bytes) -> tuple[bytes, bytes]:
    """Return (title and descriptions, JSON-LD) of a page as a parser writes it; of each at most 256 KiB."""
    end = written.find(b"</head>")
    head = written[: end if end >= 0 else 0]
    start = head.find(b"<title>")
    said = [head[start : head.find(b"</title>", start)] if start >= 0 else b""]
    said += (match[0] for match in _META.finditer(head))
    stored, size, at = [], 0, written.find(_SCRIPT)
    while at >= 0 and size < _MOST_BYTES:
        finish = written.find(b"</script>", at)
        finish = len(written) if finish < 0 else finish
        stored.append(written[at:finish])
        size += finish - at
        at = written.find(_SCRIPT, finish)
    return b" ".join(said)[:_MOST_BYTES], b" ".join(stored)[:_MOST_BYTES]


@subkernel
def _next_word(text, i, end):
    """Return (the hash of the next word from ``i`` on, 0 where there is none, the index after it)."""
    value = _SEED
    start = -1
    while i < end:
        byte = lower(text[i])
        if byte >= 0x80 or 0x61 <= byte <= 0x7A or 0x30 <= byte <= 0x39:
            value = (value ^ np.uint64(byte)) * _PRIME
            start = i
        elif start >= 0:
            break
        i += 1
    return (value if start >= 0 else np.uint64(0)), i


@subkernel
def _mixed(first, second, third):
    value = (first * _SPREAD ^ second) * _SPREAD ^ third
    return (value * _SPREAD) | np.uint64(1)


@kernel
def shares(
    summary: npt.NDArray[np.uint8], text: npt.NDArray[np.uint8], blocks: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return of each block the share of its words, three in a row, that stand in ``summary``: float32, (blocks,)."""
    size = 16
    while size < len(summary):
        size *= 2
    table = np.zeros(size, np.uint64)
    mask = np.uint64(size - 1)
    result = np.zeros(len(blocks), np.float32)
    first = second = np.uint64(0)
    i, some = 0, False
    while True:
        third, i = _next_word(summary, i, len(summary))
        if not third:
            break
        if first:
            key = _mixed(first, second, third)
            slot = (key >> np.uint64(20)) & mask
            while table[slot] and table[slot] != key:
                slot = (slot + np.uint64(1)) & mask
            table[slot] = key
            some = True
        first, second = second, third
    if not some:
        return result
    for b in range(len(blocks)):
        i, end = blocks[b, START], blocks[b, END]
        first = second = np.uint64(0)
        found = count = 0
        while True:
            third, i = _next_word(text, i, end)
            if not third:
                break
            if first:
                key = _mixed(first, second, third)
                slot = (key >> np.uint64(20)) & mask
                while table[slot] and table[slot] != key:
                    slot = (slot + np.uint64(1)) & mask
                found += table[slot] == key
                count += 1
            first, second = second, third
        if count:
            result[b] = np.float32(found) / np.float32(count)
    return result
