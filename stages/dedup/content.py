"""The content hash: what two documents share that differ in white space alone."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from stages.jit import argument, kernel
from stages.text.blocks import BLOCK, controls, copy_block, spaces, trailing_zeros
from stages.text.characters import WHITESPACE, character_table, whitespace_bytes
from stages.text.utf8 import decode

HASH_BYTES: Final = 16


def content_hashes(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> pa.Array:
    """Return the XXH3-128 of every document's folded text, canonical, as n fixed_size_binary values of 16 bytes.

    Args:
        data: UTF-8, in NFC.
        bounds: where the documents begin, int64 of shape (n + 1,).
    """
    folded, offsets = fold_whitespace(data, bounds)
    view = folded.data
    digests = [xxhash.xxh3_128_digest(view[start:end]) for start, end in itertools.pairwise(offsets.tolist())]
    return pa.array(digests, pa.binary(HASH_BYTES))


def fold_whitespace(
    data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return every document with one space for each run of white space inside it, and none at its ends.

    Returns:
        The bytes of the documents, which begin at the offsets; int64 of shape (n + 1,).
    """
    # Whole blocks are copied, also where less is wanted.
    folded = np.empty(int(bounds[-1] - bounds[0]) + BLOCK, np.uint8)
    offsets = np.zeros(len(bounds), np.int64)
    _fold_whitespace(argument(data), argument(bounds), character_table(), whitespace_bytes(), folded, offsets)
    return folded, offsets


@kernel
def _fold_whitespace(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    table: npt.NDArray[np.uint32],
    kinds: npt.NDArray[np.uint8],
    folded: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
) -> None:
    count = np.int64(0)
    last = len(data) - BLOCK
    for row in range(len(bounds) - 1):
        start = count
        after_space = np.int64(1)
        at, end = bounds[row], bounds[row + 1]
        while at < end:
            if at <= last:
                # What is copied as it stands: all up to a control, a byte beyond ASCII, or a space behind white space.
                blank = spaces(data, at)
                odd = controls(data, at) | blank & (blank << np.uint64(1) | np.uint64(after_space))
                size = min(end - at, trailing_zeros(odd))
                if size:
                    copy_block(data, at, folded, count)
                    at += size
                    count += size
                    after_space = np.int64(blank >> np.uint64(size - 1) & np.uint64(1))
                    continue
            byte = np.int64(data[np.uint64(at)])
            kind = np.int64(kinds[np.uint64(byte)])
            if kind == 2:
                point, after = decode(data, at, end)
                kind = np.int64(table[np.uint64(point)] & WHITESPACE != 0)
                if kind:
                    at = after - 1
            at += 1
            # Where words end cannot be predicted, so nothing branches on it: what is not counted is written over.
            folded[np.uint64(count)] = byte & (kind - 1) | 0x20 & -kind
            count += 1 - (kind & after_space)
            after_space = kind
        if after_space and count > start:
            count -= 1
        offsets[row + 1] = count
