"""grain: a global shuffle over rows cut beforehand ("rows"), or over documents, with its own packing ("packed")."""

from __future__ import annotations

from collections.abc import Iterator

import grain
import numpy as np
from complete import ROWS, arguments, batches, complete, documents_of, measured, tokens_of


class Rows:
    """Rows of the documents one after another: a random-access source."""

    def __init__(self, tokens: np.ndarray, context: int) -> None:
        self._tokens, self._context = tokens, context

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._context

    def __getitem__(self, row: int) -> np.ndarray:
        return self._tokens[row * self._context : (row + 1) * self._context + 1]


class Documents:
    """Whole documents, cut where they are longer than a row, as grain's packing wants them."""

    def __init__(self, documents: list[np.ndarray], context: int) -> None:
        self._documents, self._context = documents, context

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, number: int) -> dict[str, np.ndarray]:
        document = self._documents[number][: self._context]
        targets = np.append(document[1:], 0).astype(np.int64)
        return {"tokens": document.astype(np.int64), "targets": targets}


def main() -> None:
    """Serve; there is nothing to write."""
    what, documents, _, context, count = arguments()
    if what == "prepare":
        return

    def rows() -> Iterator[tuple[np.ndarray, ...]]:
        source = Rows(tokens_of(documents), context)
        dataset = grain.MapDataset.source(source).shuffle(seed=1).repeat()
        for batch in batches(dataset.to_iter_dataset(grain.ReadOptions(num_threads=0))):
            yield complete(batch)

    def packed() -> Iterator[tuple[np.ndarray, ...]]:
        lengths = {"tokens": context, "targets": context}
        source = Documents(documents_of(documents), context)
        dataset = grain.MapDataset.source(source).shuffle(seed=1).repeat()
        dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=0))
        packing = grain.experimental.FirstFitPackIterDataset(dataset, num_packing_bins=ROWS, length_struct=lengths)
        for batch in packing.batch(ROWS):
            yield tuple(batch[name] for name in ("tokens", "targets", "tokens_positions", "tokens_segment_ids"))

    measured({"rows": rows, "packed": packed}[what], count)


if __name__ == "__main__":
    main()
