"""fingerprint_v2: what deduplication needs to know of a document, so that it never has to see its text again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic

from stages.base import Measured, stage
from stages.dedup.content import HASH_BYTES, content_hashes
from stages.dedup.minhash import DEFAULT_PERMUTATIONS, MAX_PERMUTATIONS, bands_for, text_signatures
from stages.text.normal import composed
from stages.text.shingles import MAX_SHINGLE_WORDS
from stages.text.utf8 import utf8_buffers


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
    applied_later: ClassVar[frozenset[str]] = frozenset({"threshold"})

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

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Fingerprint every row; a document without text is like an empty one."""
        data, bounds = utf8_buffers(composed(batch.column("text")))
        signature, shingles = text_signatures(data, bounds, self.shingle_words, self.permutations, self.seed)
        columns = {
            "content_hash": content_hashes(data, bounds),
            "signature": fixed_binary(signature),
            "shingles": pa.array(shingles),
        }
        return Measured(columns=columns)


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
