"""The forest: a kernel that walks it as written, and the choice of blocks against trying every one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.html.features import FEATURES
from stages.html.forest import ONE, Forest, chosen, forest

STORED = {
    "features": FEATURES,
    "roots": [0, 1],
    "nodes": [[3, -1, -2], [5, 2, -3], [3, -4, -5]],
    "thresholds": [0.5, 1.5, 7.0],
    "leaves": [1_000_000, -1_000_000, 3_000_000, -500_000, 250_000],
}


def naive(x: np.ndarray) -> int:
    first = 1_000_000 if x[3] <= 0.5 else -1_000_000
    second = (-500_000 if x[3] <= 7 else 250_000) if x[5] <= 1.5 else 3_000_000
    return first + second


def test_it_walks_its_trees() -> None:
    x = np.random.default_rng(1).uniform(-2, 9, (500, FEATURES)).astype(np.float32)
    found = Forest(json.dumps(STORED)).likelihoods(x) / ONE
    wanted = [1 / (1 + np.exp(-naive(row) / ONE)) for row in x]
    assert np.abs(found - wanted).max() < 0.005


def test_a_forest_of_other_features_is_refused() -> None:
    with pytest.raises(ValueError, match="learnt of 7 features"):
        Forest(json.dumps(STORED | {"features": 7}))


def test_the_package_s_forest_says_where_it_comes_from() -> None:
    assert len(forest().roots) > 100
    assert (forest().nodes[:, 0] < FEATURES).all()
    from importlib import resources

    assert "CC BY 4.0" in json.loads(resources.files("stages.html").joinpath("forest.json").read_text())["attribution"]


@given(st.lists(st.tuples(st.integers(0, ONE), st.integers(1, 50)), min_size=1, max_size=12))
def test_no_other_number_of_the_likeliest_blocks_promises_more(rows: list[tuple[int, int]]) -> None:
    likelihood, words = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    kept = chosen(likelihood, words, 0)

    def promised(keep: np.ndarray) -> float:
        expected = likelihood * words
        return float(2 * expected[keep].sum() / max(ONE * words[keep].sum() + expected.sum(), 1))

    assert kept.any()
    best = max(promised(likelihood >= limit) for limit in likelihood)
    assert promised(kept) >= best - 1e-9


def test_unlikely_blocks_are_never_kept() -> None:
    assert chosen(np.array([100, 50]), np.array([1, 1]), 200).tolist() == [False, False]
    assert chosen(np.zeros(0, np.int64), np.zeros(0, np.int64), 0).tolist() == []
