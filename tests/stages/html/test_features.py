"""Features: the walk down to the main range, and that they are finite numbers of every page."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from stages.html.blocks import Page
from stages.html.features import FEATURES, features_of
from tests.stages.html.test_blocks import PIECES

LONG = "The mill stands beside the river, and its wheel still turns in spring, as the miller says. "


def features(html: str) -> np.ndarray:
    return features_of(Page(str(HTMLTree.parse(html))))


def test_a_block_inside_the_main_range_differs_from_the_same_block_outside() -> None:
    x = features(f"<body><div><p>{LONG}</div><main>{f'<p>{LONG}</p>' * 9}</main><div><p>{LONG}</div>")
    assert x.shape == (11, FEATURES)
    inside, outside = x[5], x[0]
    assert (inside != outside).sum() > 20


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=60))
def test_every_feature_of_any_page_is_finite(pieces: list[str]) -> None:
    assert np.isfinite(features("".join(pieces))).all()


def test_a_page_without_blocks_has_none() -> None:
    assert features("").shape == (0, FEATURES)


def test_features_are_of_the_page_alone() -> None:
    html = f"<p>{LONG}<p>{LONG}<ul><li>a<li>b"
    assert (features(html) == features(html)).all()
