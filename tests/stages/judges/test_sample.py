from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.checks import KEPT
from stages.judges.sample import Sample
from tests.stages.support import stage_of

SHARES = st.floats(0, 1, allow_nan=False)


def kept(share: float, seed: int, ids: list[int]) -> set[int]:
    codes = stage_of(Sample, share=share, seed=seed).judge(pa.record_batch({"doc_id": pa.array(ids, pa.int64())})).codes
    return {key for key, code in zip(ids, codes, strict=True) if code == KEPT}


@given(SHARES, SHARES, st.integers(-(1 << 70), 1 << 70), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=50))
def test_shares_are_nested(a: float, b: float, seed: int, ids: list[int]) -> None:
    low, high = sorted((a, b))
    assert kept(low, seed, ids) <= kept(high, seed, ids)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.97, 1.0])
def test_keeps_its_share_within_five_standard_deviations(share: float) -> None:
    n = 50_000
    ids = [source << 32 | record for source in range(50) for record in range(n // 50)]
    assert abs(len(kept(share, 7, ids)) - share * n) <= 5 * np.sqrt(n * share * (1 - share))


def test_seeds_choose_independently() -> None:
    ids = list(range(20_000))
    both = len(kept(0.5, 1, ids) & kept(0.5, 2, ids))
    assert abs(both - 5_000) < 5 * np.sqrt(20_000 * 0.25 * 0.75)


def test_a_document_counts_as_left_out_or_not(documents: Callable[..., pa.RecordBatch]) -> None:
    verdict = stage_of(Sample, share=0.3).judge(documents(200))
    left_out = verdict.columns["sample_v1.left_out"].to_pylist()
    assert left_out == [int(code == 0) for code in verdict.codes]
    assert 0 < sum(left_out) < 200


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_refuses_what_is_no_share(share: float) -> None:
    with pytest.raises(pydantic.ValidationError):
        stage_of(Sample, share=share)
