from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dedup.components import forest
from stages.dedup.near import LINK
from stages.dedup.stars import both_ways, from_larger, large_star, small_star, unfinished

EDGES = st.lists(st.tuples(st.integers(-4, 15), st.integers(-4, 15)), max_size=40)


def shuffled(links: np.ndarray, star: Callable[[np.ndarray], np.ndarray], parts: int) -> np.ndarray:
    """A step over any partition of the vertices."""
    return np.concatenate([star(links[links["a"] % parts == part]) for part in range(parts)])


def rounds(links: np.ndarray, parts: int) -> tuple[set[tuple[int, int]], int]:
    """Go on until all vertices are finished, and return the links and the number of rounds."""
    for number in range(100):
        turned = both_ways(links)
        if not sum(unfinished(turned[turned["a"] % parts == part]) for part in range(parts)):
            return {(min(pair), max(pair)) for pair in links.tolist() if pair[0] != pair[1]}, number
        links = shuffled(both_ways(links), large_star, parts)
        links = shuffled(from_larger(links), small_star, parts)
    raise AssertionError("the rounds do not end")


@settings(deadline=None, max_examples=150)
@given(EDGES, st.integers(1, 5))
def test_the_rounds_end_in_the_star_of_each_component(edges: list[tuple[int, int]], parts: int) -> None:
    links = np.array(edges, LINK)
    found, _ = rounds(links, parts)
    assert found == set(forest(links).tolist())


def graph(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    count = 100_000
    links = np.empty(count, LINK)
    if kind == "path":
        links["a"], links["b"] = np.arange(count), np.arange(1, count + 1)
    elif kind == "path in any order":
        names = rng.permutation(count + 1)
        links["a"], links["b"] = names[:-1], names[1:]
    elif kind == "stars":
        links["a"], links["b"] = np.arange(count) % 100 + count, np.arange(count)
    else:
        # As many edges as vertices: nearly all of what has an edge is one component.
        links["a"], links["b"] = rng.integers(0, count, (2, count))
    return links


@pytest.mark.parametrize(("kind", "most"), [("path", 18), ("path in any order", 18), ("stars", 2), ("percolating", 8)])
def test_rounds_grow_with_the_logarithm(kind: str, most: int) -> None:
    links = graph(kind)
    found, number = rounds(links, 3)
    assert found == set(forest(links).tolist())
    assert number <= most


def test_nothing_and_a_link_to_itself() -> None:
    for links in (np.empty(0, LINK), np.array([(3, 3)], LINK)):
        assert len(large_star(both_ways(links))) == len(small_star(from_larger(links))) == 0
        assert unfinished(both_ways(links)) == 0
