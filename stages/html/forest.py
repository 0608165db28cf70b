"""The learnt forest: how likely each block is main content, and which blocks to keep of a page.

All sums are of whole numbers, so a page gives the same text on every machine.
"""

from __future__ import annotations

import functools
import json
import math
from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt

from stages.html.features import FEATURES
from stages.jit import argument, kernel

FILE: Final = "forest.json"
"""The forest, beside this file; ``stages.html.learn`` writes it."""
ONE: Final = 1_000_000
"""Likelihoods and log-odds are in millionths."""
_STEP: Final = 1 << 14
_STEPS: Final = 1024
_SIGMOID: Final = np.array([round(ONE / (1 + math.exp(-at * _STEP / ONE))) for at in range(-_STEPS, _STEPS + 1)])
"""The likelihood at every ``_STEP`` of the log-odds, int64."""


class Forest:
    """Decision trees, one after the other.

    Attributes:
        roots: the first node of each tree, int64 of shape (trees,).
        nodes: int64 of shape (nodes, 3): the feature; the node where it is at most the threshold, and where it is
            more. A negative one is a leaf: ``leaves[-1 - node]``.
        thresholds: float32 of shape (nodes,).
        leaves: what each leaf adds to the log-odds, in millionths, int64.
    """

    def __init__(self, text: str) -> None:
        stored = json.loads(text)
        if stored["features"] != FEATURES:
            raise ValueError(f"the forest was learnt of {stored['features']} features, and there are {FEATURES}")
        self.roots = argument(np.array(stored["roots"], np.int64))
        self.nodes = argument(np.array(stored["nodes"], np.int64).reshape(-1, 3))
        self.thresholds = argument(np.array(stored["thresholds"], np.float32))
        self.leaves = argument(np.array(stored["leaves"], np.int64))

    def likelihoods(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Return how likely each block is main content, in millionths, int64 of shape (blocks,).

        Args:
            x: the features, float32 of shape (blocks, ``FEATURES``).
        """
        odds = walk(argument(x), self.roots, self.nodes, self.thresholds, self.leaves)
        return _SIGMOID[np.clip(odds // _STEP, -_STEPS, _STEPS) + _STEPS]


@functools.cache
def forest() -> Forest:
    """Return the package's forest, loaded once per process."""
    return Forest(resources.files("stages.html").joinpath(FILE).read_text("utf-8"))


@kernel
def walk(
    x: npt.NDArray[np.float32],
    roots: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
    thresholds: npt.NDArray[np.float32],
    leaves: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the sum of the leaves that each row of ``x`` reaches, int64 of shape (rows,)."""
    sums = np.zeros(len(x), np.int64)
    for root in roots:
        for row in range(len(x)):
            node = root
            while node >= 0:
                node = nodes[node, 1 if x[row, nodes[node, 0]] <= thresholds[node] else 2]
            sums[row] += leaves[-1 - node]
    return sums


def chosen(likelihood: npt.NDArray[np.int64], words: npt.NDArray[np.int64], least: int) -> npt.NDArray[np.bool_]:
    """Return which blocks to keep: the likeliest, as many as promise the best F1 of the page's words.

    With likelihoods p and words w, keeping the set K promises 2 sum(p w over K) / (sum(w over K) + sum(p w)); so a page
    of which little is certain keeps its likeliest blocks, and none is left empty by a fixed threshold (Lipton, Elkan
    and Naryanaswamy 2014, arXiv:1402.1892).

    Args:
        likelihood: of each block, in millionths.
        words: of each block, at least 1.
        least: blocks less likely than so many millionths are not kept.
    """
    if not len(likelihood):
        return np.zeros(0, np.bool_)
    order = np.argsort(-likelihood, kind="stable")
    promised = np.cumsum((likelihood * words)[order])
    kept = np.cumsum(words[order]) * ONE
    best = int(np.argmax(promised / (kept + promised[-1])))
    return likelihood >= max(int(likelihood[order[best]]), least)
