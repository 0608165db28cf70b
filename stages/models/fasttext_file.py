"""The layout of a fastText model file, walked to see that it is whole, and which labels it has, without loading it.

fastText itself loads a cut file silently.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

_MAGIC: Final = 793_712_314
_VERSION: Final = 12
_LABEL_ENTRY: Final = 1
_ARGUMENTS: Final = 12 * 4 + 8
_CENTROIDS: Final = 256
"""Centroids of a product quantiser, for each of its dimensions."""


def labels_of(path: str) -> list[str]:
    """Check that the file ends where its layout says, and return its labels, none of an unsupervised model.

    Raises:
        ValueError: if it does not, or is no fastText model of version 12 (2017, since then the only one written).
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            labels: list[str] = []
            end = _end(data, labels)
            if end != len(data):
                raise ValueError(f"{len(data)} bytes, of which its layout asks {end}")
            return labels
    except (struct.error, OverflowError, IndexError):
        # A damaged count points past the end, or past every possible end.
        raise ValueError("it ends early") from None


def _end(data: mmap.mmap, labels: list[str]) -> int:
    magic, version = struct.unpack_from("<ii", data, 0)
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError("its first bytes are not a model's")
    entries, _, _, _, pruned = struct.unpack_from("<iiiqq", data, 8 + _ARGUMENTS)
    at = 8 + _ARGUMENTS + 28
    for _ in range(entries):
        nul = data.find(b"\0", at)
        if nul < 0:
            raise ValueError("it ends inside its dictionary")
        # Then a 64-bit count and an 8-bit type: a word, or a label.
        if data[nul + 9] == _LABEL_ENTRY:
            labels.append(data[at:nul].decode("utf-8", "replace"))
        at = nul + 1 + 9
    at += 8 * max(pruned, 0)
    (quantised,) = struct.unpack_from("<?", data, at)
    at = _after_quantised(data, at + 1) if quantised else _after_dense(data, at + 1)
    (quantised_output,) = struct.unpack_from("<?", data, at)
    return _after_quantised(data, at + 1) if quantised and quantised_output else _after_dense(data, at + 1)


def _after_dense(data: mmap.mmap, at: int) -> int:
    rows, columns = struct.unpack_from("<qq", data, at)
    return _after(at + 16, 4 * rows * columns)


def _after_quantised(data: mmap.mmap, at: int) -> int:
    normed, rows, _, codes = struct.unpack_from("<?qqi", data, at)
    at = _after_quantiser(data, _after(at + 21, codes))
    return _after_quantiser(data, _after(at, rows)) if normed else at


def _after_quantiser(data: mmap.mmap, at: int) -> int:
    (dimensions,) = struct.unpack_from("<i", data, at)
    return _after(at + 16, 4 * _CENTROIDS * dimensions)


def _after(at: int, size: int) -> int:
    if size < 0:
        raise ValueError("a part of it has a negative size")
    return at + size
