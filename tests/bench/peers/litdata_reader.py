"""litdata: tokens in its chunks, read as rows by its own loader, shuffled in its own way (chunks, and rows in each)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from complete import arguments, batches, complete, documents_of, measured
from litdata import StreamingDataset, TokensLoader, optimize

_DOCUMENTS = 1_000


class Documents:
    """Yields the tokens of some documents; a class, because its workers pickle it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, first: int) -> Iterator[torch.Tensor]:
        for document in documents_of(self._folder)[first : first + _DOCUMENTS]:
            yield torch.from_numpy(document.astype(np.int32))


def main() -> None:
    """Write, or serve."""
    what, documents, folder, context, count = arguments()
    if what == "prepare":
        optimize(
            fn=Documents(documents),
            inputs=list(range(0, len(documents_of(documents)), _DOCUMENTS)),
            output_dir=str(folder),
            chunk_size=(context + 1) * 2_048,
            item_loader=TokensLoader(),
            num_workers=1,
        )
        return
    dataset = StreamingDataset(str(folder), item_loader=TokensLoader(block_size=context + 1), shuffle=True, seed=1)

    def serve() -> Iterator[tuple[np.ndarray, ...]]:
        while True:
            for batch in batches(row.numpy() for row in dataset):
                yield complete(batch)

    measured(serve, count)


if __name__ == "__main__":
    main()
