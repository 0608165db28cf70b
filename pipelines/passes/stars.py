"""Components of links in rounds of large-star and small-star on Beam, for more links than one machine should hold.

The rounds are unrolled, because a pipeline has no loops; each is two shuffles by vertex. Whether they were enough is
found out at the end, and never taken for granted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from pipelines.beam.dofn import Step
from pipelines.passes.shuffle import range_of
from shards.errors import UserError
from stages.dedup.near import LINK
from stages.dedup.stars import both_ways, from_larger, large_star, small_star, unfinished
from stages.jit import mix64

PIECE_BYTES: Final = 4 << 20
"""Largest element; real runners refuse those over 10 MB."""

Links = npt.NDArray[Any]


def rounds_for(links: int) -> int:
    """Return how many rounds so many links are given: a path of them takes about half as many."""
    return math.ceil(math.log2(links + 2)) + 2


def stars(links: Any, ranges: int, rounds: int, place: str) -> Any:
    """Return the star of each component: a PCollection of bytes of ``LINK``, from its smallest vertex to each other.

    Args:
        links: a PCollection of bytes of ``LINK``.
        ranges: into how many ranges of vertices each shuffle deals them.
        rounds: how many rounds there are.
        place: whose the links are, to be named where rounds do not suffice.
    """
    for number in range(rounds):
        links = _step(links, f"large star {number}", both_ways, large_star, ranges)
        links = _step(links, f"small star {number}", from_larger, small_star, ranges)
    finish = beam.ParDo(_Finish(rounds, place)).with_output_types(bytes)
    return _shuffled(links, "finished", both_ways, ranges) | "finish" >> finish


def _step(links: Any, name: str, turn: Callable[[Links], Links], star: Callable[[Links], Links], ranges: int) -> Any:
    return _shuffled(links, name, turn, ranges) | f"{name}: star" >> beam.ParDo(_Star(star)).with_output_types(bytes)


def _shuffled(links: Any, name: str, turn: Callable[[Links], Links], ranges: int) -> Any:
    dealt = links | f"{name}: deal" >> beam.ParDo(_Deal(turn, ranges)).with_output_types(tuple[int, bytes])
    return dealt | f"{name}: by vertex" >> beam.GroupByKey()


class _Deal(Step):
    """Emits (range of the vertex a, bytes) of links."""

    def __init__(self, turn: Callable[[Links], Links], ranges: int) -> None:
        self._turn, self._ranges = turn, ranges

    def work(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        links = self._turn(np.frombuffer(data, LINK))
        where = range_of(mix64(links["a"].astype(np.uint64)), self._ranges)
        order = np.argsort(where, kind="stable")
        ordered, at = links[order], where[order]
        bounds = np.flatnonzero(np.diff(at, prepend=-1, append=self._ranges))
        for start, end in itertools.pairwise(bounds.tolist()):
            yield int(at[start]), ordered[start:end].tobytes()


class _Star(Step):
    def __init__(self, star: Callable[[Links], Links]) -> None:
        self._star = star

    def work(self, keyed: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        yield from _pieces(self._star(_gathered(keyed[1])))


class _Finish(Step):
    def __init__(self, rounds: int, place: str) -> None:
        self._rounds, self._place = rounds, place

    def work(self, keyed: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        links = _gathered(keyed[1])
        if left := unfinished(links):
            raise UserError(
                f"{left} documents are in components that {self._rounds} rounds did not finish",
                place=self._place,
                remedy="Raise dedup.threshold: fewer documents will be linked, by shorter chains",
            )
        yield from _pieces(links[links["a"] < links["b"]])


def _gathered(pieces: Iterable[bytes]) -> Links:
    return np.concatenate([np.empty(0, LINK), *(np.frombuffer(piece, LINK) for piece in pieces)])


def _pieces(links: Links) -> Iterator[bytes]:
    step = PIECE_BYTES // LINK.itemsize
    for begin in range(0, len(links), step):
        yield links[begin : begin + step].tobytes()
