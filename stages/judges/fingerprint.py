"""fingerprint_v2: what deduplication needs to know of a document, so that it never has to see its text again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic
import xxhash

from stages.base import Verdict, keep_all, stage
from stages.dedup.minhash import DEFAULT_PERMUTATIONS, MAX_PERMUTATIONS, bands_for, signatures
from stages.jit import argument, kernel
from stages.text.characters import WHITESPACE, character_table, whitespace_bytes
from stages.text.shingles import MAX_SHINGLE_WORDS, buffer_shingles, composed
from stages.text.utf8 import decode, utf8_buffers

HASH_BYTES = 16


@stage
class Fingerprint:
    """Add the content hash, the MinHash signature and the number of shingles of every document. Drops nothing.

    ``content_hash`` is XXH3-128 (canonical, big-endian) of the text in NFC with every run of whitespace as one space
    and none at the ends; case and punctuation count. So equal content hashes imply equal shingles. ``signature`` holds
    ``permutations`` little-endian uint32, whose bands are compared by ``stages.dedup.near``.

    Attributes:
        shingle_words: words in a shingle.
        permutations: length of the signature.
        seed: of the permutations.
        threshold: Jaccard from which documents are near duplicates; gives bands and rows.
    """

    name: ClassVar[str] = "fingerprint_v2"
    reasons: ClassVar[tuple[str, ...]] = ()

    shingle_words: Annotated[int, pydantic.Field(ge=1, le=MAX_SHINGLE_WORDS)] = 5
    permutations: Annotated[int, pydantic.Field(ge=1, le=MAX_PERMUTATIONS)] = DEFAULT_PERMUTATIONS
    seed: Annotated[int, pydantic.Field(ge=0, lt=1 << 63)] = 1
    threshold: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.8

    def __post_init__(self) -> None:
        bands_for(self.threshold, self.permutations)

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """The columns it adds; the width of the signature depends on ``permutations``."""
        return {
            "content_hash": pa.binary(HASH_BYTES),
            "signature": pa.binary(4 * self.permutations),
            "shingles": pa.int32(),
        }

    @property
    def bands(self) -> tuple[int, int]:
        """Bands, and rows in each, for ``stages.dedup.minhash.band_keys``."""
        return bands_for(self.threshold, self.permutations)

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Keep every row and fingerprint it; a document without text is like an empty one."""
        data, bounds = utf8_buffers(composed(batch.column("text")))
        offsets, hashes = buffer_shingles(data, bounds, self.shingle_words)
        columns = {
            "content_hash": _content_hashes(data, bounds),
            "signature": fixed_binary(signatures(offsets, hashes, self.permutations, self.seed)),
            "shingles": pa.array(np.diff(offsets).astype(np.int32)),
        }
        return Verdict(keep_all(batch.num_rows), columns=columns)


def _content_hashes(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> pa.Array:
    """Return the content hash of every document, fixed_size_binary(16)."""
    folded = np.empty(int(bounds[-1] - bounds[0]), np.uint8)
    offsets = np.zeros(len(bounds), np.int64)
    _fold_whitespace(data, argument(bounds), character_table(), whitespace_bytes(), folded, offsets)
    view = folded.data
    digests = [xxhash.xxh3_128_digest(view[start:end]) for start, end in itertools.pairwise(offsets.tolist())]
    return pa.array(digests, pa.binary(HASH_BYTES))


def fixed_binary(rows: npt.NDArray[np.uint32]) -> pa.Array:
    """Return uint32 of shape (n, width) as n fixed_size_binary values of 4 * width bytes, little-endian."""
    packed = np.ascontiguousarray(rows, dtype="<u4")
    return pa.Array.from_buffers(pa.binary(4 * rows.shape[1]), len(rows), [None, pa.py_buffer(packed)])


def signature_matrix(signature: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the signatures of a column without nulls back as uint32 of shape (n, permutations), without a copy.

    Raises:
        ValueError: if there are nulls.
    """
    if signature.null_count:
        raise ValueError(f"{signature.null_count} of {len(signature)} signatures are null")
    width = signature.type.byte_width // 4
    data = np.frombuffer(signature.buffers()[1] or b"", "<u4")
    rows: npt.NDArray[np.uint32] = data[signature.offset * width : (signature.offset + len(signature)) * width]
    return rows.reshape(-1, width)


@kernel
def _fold_whitespace(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    table: npt.NDArray[np.uint32],
    kinds: npt.NDArray[np.uint8],
    folded: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
) -> None:
    """Copy every document with one space for each run of whitespace inside it, and none at its ends."""
    count = np.int64(0)
    for row in range(len(bounds) - 1):
        start = count
        after_space = np.int64(1)
        at, end = bounds[row], bounds[row + 1]
        while at < end:
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
