from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dedup.components import components

ID = st.one_of(st.integers(-4, 12), st.sampled_from([-(2**63), 2**63 - 1, 5 << 32]))
EDGES = st.lists(st.tuples(ID, ID), max_size=40)


def obvious(edges: list[tuple[int, int]]) -> dict[int, int]:
    """Lower labels along edges until nothing changes."""
    label = {vertex: vertex for edge in edges for vertex in edge}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            low = min(label[a], label[b])
            changed |= label[a] != low or label[b] != low
            label[a] = label[b] = low
    return label


@settings(deadline=None, max_examples=150)
@given(EDGES, st.randoms(use_true_random=False))
def test_the_obvious_components_whatever_the_order(edges: list[tuple[int, int]], random: object) -> None:
    shuffled = [edge if random.random() < 0.5 else edge[::-1] for edge in edges]  # type: ignore[attr-defined]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    ends = np.array(shuffled, np.int64).reshape(-1, 2)
    ids, root = components(ends[:, 0], ends[:, 1])
    assert ids.tolist() == sorted(set(ids.tolist()))
    assert dict(zip(ids.tolist(), root.tolist(), strict=True)) == obvious(edges)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_path_is_one_component(reverse: bool) -> None:
    path = np.arange(200_001) * 3
    edges = np.random.default_rng(0).permutation(200_000) if reverse else np.arange(200_000)
    _, root = components(path[edges + 1], path[edges])
    assert (root == 0).all()


def test_nothing() -> None:
    ids, root = components(np.empty(0, np.int64), np.empty(0, np.int64))
    assert ids.dtype == root.dtype == np.int64
    assert len(ids) == len(root) == 0


def test_impossible_edges() -> None:
    with pytest.raises(ValueError, match="not int64 arrays of equal length"):
        components(np.zeros(2, np.int64), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="uint64"):
        components(np.zeros(2, np.uint64), np.zeros(2, np.int64))
