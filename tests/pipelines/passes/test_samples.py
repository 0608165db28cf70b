from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.passes.samples import SAMPLES_PER_REASON, Samples
from shards.schema import DOCUMENT
from stages.text.hashing import splitmix64

MARKED = pa.schema([*(DOCUMENT.field(name) for name in ("doc_id", "text", "url", "dropped_by", "reason", "value"))])


@settings(deadline=None, max_examples=40)
@given(reasons=st.lists(st.sampled_from([None, "a", "b"]), max_size=60), cut=st.integers(0, 60))
def test_samples_are_the_smallest_hashes_of_each_reason_however_batches_are_cut(
    reasons: list[str | None], cut: int
) -> None:
    rows = [
        {"doc_id": i, "text": "x" * 5_000 if i else None, "url": "u", "value": 1.0}
        | {"dropped_by": reason and "s_v1", "reason": reason}
        for i, reason in enumerate(reasons)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=MARKED)
    samples = Samples(SAMPLES_PER_REASON)
    samples.add(batch.slice(0, cut))
    samples.add(batch.slice(cut))
    found = samples.table().select(["reason", "doc_id"]).to_pylist()
    expected = []
    for reason in "ab":
        ids = [i for i, given_reason in enumerate(reasons) if given_reason == reason and i]
        hashes = dict(zip(ids, splitmix64(np.array(ids, np.uint64)).tolist(), strict=True))
        expected += [{"reason": reason, "doc_id": i} for i in sorted(ids, key=hashes.__getitem__)[:SAMPLES_PER_REASON]]
    assert found == expected
    assert all(len(text) == 4_000 for text in samples.table().column("text").to_pylist())
