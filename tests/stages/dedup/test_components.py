from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dedup.components import components, components_of_chunks, forest
from stages.dedup.near import LINK

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


@settings(deadline=None, max_examples=150)
@given(EDGES, st.lists(st.integers(0, 40), max_size=5))
def test_edges_in_chunks_have_the_same_components(edges: list[tuple[int, int]], cuts: list[int]) -> None:
    links = np.array(edges, LINK)
    expected = components(np.ascontiguousarray(links["a"]), np.ascontiguousarray(links["b"]))
    parts = np.split(links, sorted(cuts))
    found = components_of_chunks(lambda: iter(parts))
    for one, other in zip(found, expected, strict=True):
        assert one.tolist() == other.tolist()


@settings(deadline=None, max_examples=100)
@given(EDGES)
def test_a_forest_has_the_same_components_and_fewer_links_than_vertices(edges: list[tuple[int, int]]) -> None:
    links = np.array(edges, LINK)
    found = forest(links)
    label = obvious(edges)
    assert found.tolist() == [(label[vertex], vertex) for vertex in sorted(label) if label[vertex] != vertex]


def test_an_edge_that_was_not_there_before() -> None:
    chunks = iter([[np.array([(1, 2)], LINK)], [np.array([(1, 3)], LINK)]])
    with pytest.raises(ValueError, match="was not there before"):
        components_of_chunks(lambda: next(chunks))


def test_nothing() -> None:
    ids, root = components(np.empty(0, np.int64), np.empty(0, np.int64))
    assert ids.dtype == root.dtype == np.int64
    assert len(ids) == len(root) == 0


def test_impossible_edges() -> None:
    with pytest.raises(ValueError, match="not int64 arrays of equal length"):
        components(np.zeros(2, np.int64), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="uint64"):
        components(np.zeros(2, np.uint64), np.zeros(2, np.int64))
