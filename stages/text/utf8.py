"""UTF-8 as Arrow holds it: the buffers of a column, and the one decoder of every kernel."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.jit import argument, subkernel

LINE_FEED: Final = np.int64(0x0A)
_SURROGATES: Final = 0xD800 >> 11
REPLACEMENT: Final = np.int64(0xFFFD)


def utf8_buffers(text: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the UTF-8 bytes of a string array without nulls and its offsets into them, int64 of shape (n + 1,)."""
    if text.null_count or not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type)):
        raise TypeError(f"{text.type} with {text.null_count} nulls is not an array of strings")
    _, offsets, data = text.buffers()
    width = np.int32 if pa.types.is_string(text.type) else np.int64
    raw = argument(np.frombuffer(data if data is not None else b"", np.uint8))
    if offsets is None or not len(text):
        return raw, argument(np.zeros(1, np.int64))
    bounds = np.frombuffer(offsets, width)[text.offset : text.offset + len(text) + 1]
    return raw, argument(bounds.astype(np.int64))


@subkernel
def decode(data: npt.NDArray[np.uint8], at: int, end: int) -> tuple[np.int64, int]:
    """Return the code point at ``at`` < ``end`` and where the next begins.

    A byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7) inside ``data[at:end]`` is one U+FFFD.
    """
    # All reading is done here: numba counts references to arrays anew on every branch that uses them.
    last = end - 1
    lead = np.int64(data[np.uint64(at)])
    # A continuation byte with its highest bit flipped is less than 0x40, and the six bits that it stands for.
    second = np.int64(data[np.uint64(min(at + 1, last))]) ^ 0x80
    third = np.int64(data[np.uint64(min(at + 2, last))]) ^ 0x80
    fourth = np.int64(data[np.uint64(min(at + 3, last))]) ^ 0x80
    if lead < 0x80:
        return lead, at + 1
    size = 3
    point = (lead & 0x0F) << 12 | second << 6 | third
    is_valid = second | third < 0x40 and point >= 0x800 and point >> 11 != _SURROGATES
    if lead < 0xE0:
        size = 2
        point = (lead & 0x1F) << 6 | second
        is_valid = second < 0x40 and lead >= 0xC2
    elif lead >= 0xF0:
        size = 4
        point = (lead & 0x0F) << 18 | second << 12 | third << 6 | fourth
        is_valid = second | third | fourth < 0x40 and 0x10000 <= point < 0x110000
    if not is_valid or at + size > end:
        return REPLACEMENT, at + 1
    return point, at + size
