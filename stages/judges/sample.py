"""A share of the documents, chosen by a hash of their identity."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pydantic

from stages.base import KEPT, Verdict, stage
from stages.text.hashing import UINT64_MASK, below_share, splitmix64


@stage
class Sample:
    """Keeps ``share`` of the documents: those whose splitmix64(doc_id ^ seed) is in the lowest share of the range.

    Every run keeps the same documents, and with the same seed, a smaller share keeps a subset of a larger one.
    ``value`` of a drop is the hash as a fraction of its range: any larger share would keep the document.
    """

    name: ClassVar[str] = "sample_v1"
    reasons: ClassVar[tuple[str, ...]] = ("not_sampled",)

    share: Annotated[float, pydantic.Field(ge=0, le=1)]
    seed: int = 0

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Judge by doc_id alone."""
        ids = batch.column("doc_id").to_numpy(zero_copy_only=False).view(np.uint64)
        hashes = splitmix64(ids ^ np.uint64(self.seed & UINT64_MASK))
        codes = np.where(below_share(hashes, self.share), KEPT, 0).astype(np.int8)
        return Verdict(codes, hashes.astype(np.float64) * 2.0**-64)
