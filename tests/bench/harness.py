"""Measuring: cases that hold our code and its floors, run in turns on the same input, in CPU-seconds.

The machine is shared and noisy, so wall time says nothing: what counts is the processor time of this process (all its
threads), and above all the ratio between two things that were measured in the same round.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Work = Callable[[], object]

MIN_CPU_SECONDS = 0.1
"""A measurement shorter than this is repeated until it is as long: the clock's steps and interrupts are lost in it."""


@dataclass(frozen=True)
class Case:
    """One link of the chain.

    Attributes:
        name: what ``--only`` names.
        ours: does the link's work once.
        floors: by name, the least that must be done for it: a native library alone, or a copy.
        documents: documents (or rows, keys, batches: see ``note``) in one piece of work.
        input_bytes: bytes that it takes in; 0 where that means nothing.
        tokens: tokens that it takes in or gives out; 0 where that means nothing.
        minus: work that ``ours`` contains and that is not the link's: its time is taken off.
        note: what is compared, in one sentence.
    """

    name: str
    ours: Work
    floors: Mapping[str, Work]
    documents: int
    input_bytes: int = 0
    tokens: int = 0
    minus: Work | None = None
    note: str = ""


@dataclass
class Result:
    """What measuring a case came to; times are CPU-seconds of one piece of work, one per round."""

    case: Case
    first: float
    ours: list[float] = field(default_factory=list)
    floors: dict[str, list[float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.ours)

    @property
    def spread(self) -> float:
        """Largest minus smallest over the median: how noisy it was."""
        return (max(self.ours) - min(self.ours)) / self.seconds if self.seconds else 0.0

    def floor_seconds(self, name: str) -> float:
        """Median over the rounds."""
        return statistics.median(self.floors[name])

    def ratio(self, name: str) -> float:
        """Median over the rounds of ours over the floor, each of the same round."""
        return statistics.median(o / f for o, f in zip(self.ours, self.floors[name], strict=True))

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        case, seconds = self.case, self.seconds
        return {
            "name": case.name,
            "note": case.note,
            "documents": case.documents,
            "input_bytes": case.input_bytes,
            "tokens": case.tokens,
            "first_call_seconds": round(self.first, 4),
            "cpu_seconds": seconds,
            "spread": round(self.spread, 4),
            "documents_per_cpu_second": case.documents / seconds,
            "megabytes_per_cpu_second": case.input_bytes / seconds / 1e6,
            "tokens_per_cpu_second": case.tokens / seconds,
            "rounds": self.ours,
            "floors": {
                name: {"cpu_seconds": self.floor_seconds(name), "ratio": self.ratio(name), "rounds": rounds}
                for name, rounds in self.floors.items()
            },
        }


def measure(case: Case, rounds: int, min_cpu_seconds: float = MIN_CPU_SECONDS) -> Result:
    """Measure a case: once to warm up, then in every round ours and each floor in turn."""
    # What the corpus and earlier cases hold is no case's to collect: each collection would walk it anew.
    gc.collect()
    gc.freeze()
    first = _once(case.ours)
    works = {"": case.ours, **case.floors}
    repeats = {}
    for name, work in works.items():
        repeats[name] = max(1, math.ceil(min_cpu_seconds / max(_once(work), 1e-6)))
    if case.minus is not None:
        _once(case.minus)
    # The first call's excess over a warm one is compiling, or loading what was compiled before.
    result = Result(case, first, floors={name: [] for name in case.floors})
    for _ in range(rounds):
        took = _many(case.ours, repeats[""])
        if case.minus is not None:
            took = max(took - _many(case.minus, repeats[""]), 1e-9)
        result.ours.append(took)
        for name, work in case.floors.items():
            result.floors[name].append(_many(work, repeats[name]))
    result.first = max(0.0, first - result.seconds) if case.minus is None else 0.0
    return result


def _once(work: Work) -> float:
    return _many(work, 1)


def _many(work: Work, repeats: int) -> float:
    gc.collect()
    start = time.process_time()
    for _ in range(repeats):
        work()
    return max(time.process_time() - start, 1e-9) / repeats
