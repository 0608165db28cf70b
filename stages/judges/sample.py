"""A share of the documents, chosen by a hash of their identity."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pydantic

from stages.base import Measured, stage
from stages.checks import Check
from stages.scores import Count
from stages.text.hashing import UINT64_MASK, below_share, splitmix64


@stage
class Sample:
    """Keeps ``share`` of the documents: those whose splitmix64(doc_id ^ seed) is in the lowest share of the range.

    Every run keeps the same documents, and with the same seed, a smaller share keeps a subset of a larger one.
    """

    name: ClassVar[str] = "sample_v1"
    needs = ("doc_id",)
    scores = (Count("left_out", "1 for a document that is not part of the sample"),)
    checks = (Check("not_sampled", "left_out", max=0),)

    share: Annotated[float, pydantic.Field(ge=0, le=1)]
    seed: int = 0

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Look at the doc_id alone."""
        ids = batch.column("doc_id").to_numpy(zero_copy_only=False).view(np.uint64)
        hashes = splitmix64(ids ^ np.uint64(self.seed & UINT64_MASK))
        return Measured({"left_out": ~below_share(hashes, self.share)})
