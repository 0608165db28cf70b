"""Both Gopher heuristics of one library, on texts. Run in an environment of its own: ``gopher.py LIBRARY TEXTS.json``.

Works whenever a line comes in, and answers with the CPU-seconds that it took, as ``contenders.py`` does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable


def datatrove(texts: list[str]) -> Callable[[], object]:
    from datatrove.data import Document
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter

    filters = [GopherRepetitionFilter(), GopherQualityFilter()]
    documents = [Document(text=text, id=str(number)) for number, text in enumerate(texts)]
    return lambda: [one.filter(document) for one in filters for document in documents]


def dolma(texts: list[str]) -> Callable[[], object]:
    from dolma.core.data_types import Document
    from dolma.taggers.gopher import GopherTagger

    tagger = GopherTagger()
    documents = [Document(source="s", version="v", id=str(number), text=text) for number, text in enumerate(texts)]
    return lambda: [tagger.predict(document) for document in documents]


def headrace(texts: list[str]) -> Callable[[], object]:
    import pyarrow as pa

    from stages import scans
    from stages.judges.gopher_quality import GopherQuality
    from stages.judges.gopher_repetition import GopherRepetition
    from stages.scans import with_shared

    pa.set_cpu_count(1)
    chain = (GopherQuality(), GopherRepetition())
    whole = pa.record_batch({"text": texts, "language": ["en"] * len(texts), "domain": [""] * len(texts)})
    batches = [whole.slice(at, 500) for at in range(0, len(texts), 500)]

    def judge() -> None:
        import numpy as np

        for batch in batches:
            for stage in chain:
                # Every document by both, as the others do, whatever the first says.
                stage.judge(with_shared(stage.scans, batch, np.arange(batch.num_rows), batch))
            scans.forget()

    return judge


def main() -> None:
    with open(sys.argv[2], encoding="utf-8") as file:
        texts = json.load(file)
    work = {"datatrove": datatrove, "dolma": dolma, "headrace": headrace}[sys.argv[1]](texts)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        work()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
