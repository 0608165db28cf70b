"""A raw memmap: random windows, as small training scripts read them. No order, nothing is served exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from complete import ROWS, arguments, complete, measured, tokens_of


def main() -> None:
    """Serve windows."""
    what, documents, _, context, count = arguments()
    if what == "prepare":
        return
    tokens, rng = tokens_of(documents), np.random.default_rng(1)

    def windows() -> Iterator[tuple[np.ndarray, ...]]:
        while True:
            starts = rng.integers(0, len(tokens) - context - 1, ROWS)
            if what == "tokens":
                out = np.empty((ROWS, context), np.int64)
                for row, start in enumerate(starts.tolist()):
                    out[row] = tokens[start : start + context]
                yield (out,)
            else:
                rows = np.stack([tokens[start : start + context + 1] for start in starts.tolist()])
                yield complete(rows)

    measured(windows, count)


main()
