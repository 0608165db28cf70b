"""Connected components where no machine holds all vertices: large-star and small-star (Kiveris et al. 2014).

Both steps look at one vertex with all its neighbours at a time, so they are done over any partition of the vertices, a
shuffle before each. Taken in turns they lower every vertex to the smallest one of its component, in a number of rounds
that grows with the logarithm of the longest path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stages.dedup.near import LINK, distinct_links

Links = npt.NDArray[Any]


def both_ways(links: Links) -> Links:
    """Return ``LINK`` of shape (2 n,): each link once from either end, ``a`` being the end that it is shuffled by."""
    out = np.empty(2 * len(links), LINK)
    out["a"][: len(links)], out["b"][: len(links)] = links["a"], links["b"]
    out["a"][len(links) :], out["b"][len(links) :] = links["b"], links["a"]
    return out


def from_larger(links: Links) -> Links:
    """Return the links with ``a`` the larger end, by which small-star shuffles them."""
    out = np.empty(len(links), LINK)
    out["a"], out["b"] = np.maximum(links["a"], links["b"]), np.minimum(links["a"], links["b"])
    return out


def large_star(links: Links) -> Links:
    """Connect every larger neighbour of a vertex with the smallest one of it and its neighbours.

    Args:
        links: ``LINK``, all links of some vertices ``a``, each from either end.

    Returns:
        ``LINK`` from the smaller end, ascending, each once.
    """
    links = distinct_links(links)
    least = _least_neighbour(links)
    larger = links["b"] > links["a"]
    return _linked(least[larger], links["b"][larger])


def small_star(links: Links) -> Links:
    """Connect a vertex and its smaller neighbours with the smallest of these.

    Args:
        links: ``LINK``, all links of some vertices ``a`` to smaller ones ``b``.

    Returns:
        ``LINK`` from the smaller end, ascending, each once.
    """
    links = distinct_links(links)
    least = np.minimum(_least_neighbour(links), links["b"])
    first = np.flatnonzero(_starts(links["a"]))
    return _linked(np.concatenate([least, least[first]]), np.concatenate([links["b"], links["a"][first]]))


def unfinished(links: Links) -> int:
    """Return how many vertices ``a`` are linked to more than one smaller vertex, or both to a smaller and a larger one.

    None of all vertices are when every vertex is linked to the smallest one of its component and to no other.

    Args:
        links: ``LINK``, all links of some vertices ``a``, each from either end.
    """
    links = distinct_links(links)
    first = np.flatnonzero(_starts(links["a"]))
    if not len(first):
        return 0
    smaller = (links["b"] < links["a"]).astype(np.int64)
    below = np.add.reduceat(smaller, first)
    above = np.add.reduceat(1 - smaller, first)
    return int(((below > 1) | ((below > 0) & (above > 0))).sum())


def _starts(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    starts = np.ones(len(column), np.bool_)
    starts[1:] = column[1:] != column[:-1]
    return starts


def _least_neighbour(links: Links) -> npt.NDArray[np.int64]:
    """Return, for every link, the smallest of its vertex ``a`` and the neighbours of that; links are in order of a."""
    if not len(links):
        return np.empty(0, np.int64)
    starts = _starts(links["a"])
    least = np.minimum.reduceat(links["b"], np.flatnonzero(starts))[np.cumsum(starts) - 1]
    return np.asarray(np.minimum(least, links["a"]))


def _linked(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> Links:
    out = np.empty(len(a), LINK)
    out["a"], out["b"] = np.minimum(a, b), np.maximum(a, b)
    return distinct_links(out)
