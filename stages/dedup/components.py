"""Connected components of pairs of documents: union-find with path halving (Tarjan and van Leeuwen 1984)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from stages.jit import kernel, subkernel


def components(
    a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the connected components of the graph with an edge from ``a[i]`` to ``b[i]``.

    Args:
        a, b: int64 of shape (edges,), any ids, in any order.

    Returns:
        ids, int64 ascending, every id once; and root, int64 of the same shape: the smallest id of its component.
        Takes about 80 bytes of memory per edge.

    Raises:
        ValueError: if the arrays are not int64, or differ in length.
    """
    if a.dtype != np.int64 or b.dtype != np.int64 or a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"edges from {a.dtype}{a.shape} to {b.dtype}{b.shape}, not int64 arrays of equal length")
    ids, vertex = _numbered(np.concatenate([a, b]))
    parent = np.arange(len(ids))
    _unite(parent, vertex[: len(a)], vertex[len(a) :])
    return ids, ids[parent]


def components_of_chunks(
    chunks: Callable[[], Iterable[npt.NDArray[Any]]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the same as ``components`` for edges that come in chunks: 16 bytes of memory a vertex, beside one chunk.

    Args:
        chunks: returns arrays with the int64 fields ``a`` and ``b``, and is called twice: to number the vertices, and
            to merge along the edges.

    Raises:
        ValueError: if the second time it gives an edge of another vertex than the first.
    """
    ids = np.empty(0, np.int64)
    waiting: list[npt.NDArray[np.int64]] = []
    for chunk in chunks():
        waiting.append(_distinct(np.concatenate([chunk["a"], chunk["b"]])))
        # Merged when there is as much as before: each vertex is then sorted a few times, however many chunks there are.
        if sum(map(len, waiting)) >= len(ids):
            ids, waiting = _distinct(np.concatenate([ids, *waiting])), []
    ids = _distinct(np.concatenate([ids, *waiting]))
    parent = np.arange(len(ids))
    for chunk in chunks():
        ends, vertex = _numbered(np.concatenate([chunk["a"], chunk["b"]]))
        place = np.searchsorted(ids, ends)
        if len(ends) and (place[-1] == len(ids) or (ids[place] != ends).any()):
            raise ValueError("an edge of a vertex that was not there before")
        vertex = place[vertex]
        _unite(parent, vertex[: len(chunk)], vertex[len(chunk) :])
    return ids, ids[parent]


def forest(links: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return links with the same components: from the smallest id of each to every other, ascending by these.

    Args:
        links: a structured array with the int64 fields ``a`` and ``b``.

    Returns:
        The same type; there are fewer than vertices.
    """
    ids, root = components(np.ascontiguousarray(links["a"]), np.ascontiguousarray(links["b"]))
    below = ids != root
    out = np.empty(int(below.sum()), links.dtype)
    out["a"], out["b"] = root[below], ids[below]
    return out


def _distinct(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return values ascending, each once."""
    values = np.sort(values)
    first = np.ones(len(values), np.bool_)
    first[1:] = values[1:] != values[:-1]
    return np.asarray(values[first])


def _numbered(ends: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct values, ascending, and the place of each value among them."""
    # One argsort numbers the vertices ten times as fast as np.unique, which hashes, and searchsorted, whose reads jump.
    order = np.argsort(ends)
    ends = ends[order]
    first = np.ones(len(ends), np.bool_)
    first[1:] = ends[1:] != ends[:-1]
    vertex = np.empty(len(ends), np.int64)
    vertex[order] = np.cumsum(first) - 1
    return ends[first], vertex


@subkernel
def _find(parent: npt.NDArray[np.int64], at: int) -> int:
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = parent[at]
    return at


@kernel
def _unite(parent: npt.NDArray[np.int64], a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> None:
    """Merge along every edge under the smaller root, then point every vertex at its root."""
    for edge in range(len(a)):
        one, other = _find(parent, a[edge]), _find(parent, b[edge])
        if one < other:
            parent[other] = one
        else:
            parent[one] = other
    for at in range(len(parent)):
        # A root is smaller than everything below it, so the parent's own entry is final by now.
        parent[at] = parent[parent[at]]
