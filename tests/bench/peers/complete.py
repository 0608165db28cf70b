"""What all peers share: the documents on disk, cutting them to rows, and completing rows to what a trainer needs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

END_OF_TEXT = 0
ROWS = 64
"""Rows of a batch."""


def tokens_of(folder: Path) -> np.ndarray:
    """Return all documents one after another, uint16, each ended by ``END_OF_TEXT``."""
    return np.memmap(folder / "tokens.bin", np.uint16, "r")


def documents_of(folder: Path) -> list[np.ndarray]:
    """Return the documents, views of uint16."""
    offsets = np.fromfile(folder / "offsets.bin", np.int64)
    return np.split(np.asarray(tokens_of(folder)), offsets[1:-1])


def complete(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return tokens, targets, positions and document numbers of rows of ``context + 1`` tokens."""
    tokens, targets = rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)
    ends = tokens == END_OF_TEXT
    targets[ends] = -100
    begins = np.zeros_like(ends)
    begins[:, 1:] = ends[:, :-1]
    places = np.arange(tokens.shape[1], dtype=np.int32)
    first = np.maximum.accumulate(np.where(begins, places, np.int32(0)), axis=1)
    return tokens, targets, places - first, np.cumsum(begins, axis=1, dtype=np.int32)


def batches(rows: Iterable[np.ndarray]) -> Iterable[np.ndarray]:
    """Yield single rows as arrays of ``ROWS`` rows."""
    waiting: list[np.ndarray] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == ROWS:
            yield np.stack(waiting)
            waiting = []


def measured(serve: Callable[[], Iterable[tuple[np.ndarray, ...]]], tokens: int) -> None:
    """Serve batches until ``tokens`` tokens are out, and print what that took, without the first batches."""
    found = iter(serve())
    for _ in range(2):
        next(found)
    begun, served = time.process_time(), 0
    while served < tokens:
        served += next(found)[0].size
    print(json.dumps({"tokens": served, "cpu_seconds": time.process_time() - begun}))


def arguments() -> tuple[str, Path, Path, int, int]:
    """Return what to do (``prepare`` or a way to serve), the documents, a folder, the context and the tokens."""
    what, documents, folder, context, tokens = sys.argv[1:]
    return what, Path(documents), Path(folder), int(context), int(tokens)
