"""mosaicml-streaming: rows cut beforehand, in MDS files, shuffled globally ("naive") or in its default way ("py1e")."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from complete import ROWS, arguments, batches, complete, measured, tokens_of
from streaming import MDSWriter, StreamingDataset


def main() -> None:
    """Write, or serve."""
    what, documents, folder, context, count = arguments()
    if what == "prepare":
        tokens = tokens_of(documents)
        with MDSWriter(out=str(folder), columns={"tokens": "bytes"}, size_limit=1 << 26) as writer:
            for start in range(0, len(tokens) - context - 1, context):
                writer.write({"tokens": tokens[start : start + context + 1].tobytes()})
        return
    dataset = StreamingDataset(local=str(folder), shuffle=True, shuffle_algo=what, batch_size=ROWS, shuffle_seed=1)

    def serve() -> Iterator[tuple[np.ndarray, ...]]:
        while True:
            for batch in batches(np.frombuffer(sample["tokens"], np.uint16) for sample in dataset):
                yield complete(batch)

    measured(serve, count)


if __name__ == "__main__":
    main()
