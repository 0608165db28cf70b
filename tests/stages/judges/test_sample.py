from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base import KEPT
from stages.judges.sample import Sample

SHARES = st.floats(0, 1, allow_nan=False)


def kept(share: float, seed: int, ids: list[int]) -> set[int]:
    codes = Sample(share=share, seed=seed).judge(pa.record_batch({"doc_id": pa.array(ids, pa.int64())})).codes
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


def test_the_value_of_a_drop_is_the_share_that_would_keep_it(documents: Callable[..., pa.RecordBatch]) -> None:
    batch = documents(200)
    verdict = Sample(share=0.3).judge(batch)
    assert verdict.value is not None
    assert ((verdict.value >= 0.3) == (verdict.codes == 0)).all()


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_refuses_what_is_no_share(share: float) -> None:
    with pytest.raises(pydantic.ValidationError):
        Sample(share=share)
