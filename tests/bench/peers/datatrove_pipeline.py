"""datatrove's closest pipeline: read, language, Gopher, MinHash, tokenise. Run in an environment of its own.

    datatrove_pipeline.py FOLDER MODEL TOKENIZER

FOLDER holds ``in/*.jsonl.gz``. Prints how many documents passed the filters, and how many were tokenised, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter, LanguageFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig


def main() -> None:
    folder, model, tokenizer = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    language = LanguageFilter(languages=["en"])
    # The compressed model, so that both identify by the same one.
    type(language.model).MODEL_URL = model
    config = MinhashConfig(n_grams=5, num_buckets=16, hashes_per_bucket=7, hash_config=HashConfig(precision=64))
    step = {name: str(folder / name) for name in ("kept", "signatures", "buckets", "removed", "tokens", "logs")}
    passes = [
        [
            JsonlReader(str(folder / "in"), compression="gzip"),
            language,
            GopherRepetitionFilter(),
            GopherQualityFilter(),
            JsonlWriter(step["kept"]),
        ],
        [JsonlReader(step["kept"]), MinhashDedupSignature(output_folder=step["signatures"], config=config)],
        [MinhashDedupBuckets(step["signatures"], step["buckets"], config=config)],
        [MinhashDedupCluster(step["buckets"], step["removed"], config=config)],
        [
            JsonlReader(step["kept"]),
            MinhashDedupFilter(step["removed"]),
            DocumentTokenizer(step["tokens"], tokenizer, eos_token="<|endoftext|>", shuffle_documents=False),
        ],
    ]
    counts = []
    for number, pipeline in enumerate(passes):
        tasks = config.num_buckets if number == 2 else 1
        found = LocalPipelineExecutor(pipeline, tasks=tasks, logging_dir=f"{step['logs']}/{number}").run()
        counts.append([one.stats for one in found.stats])
    kept = sum(int(one["total"].total) for one in counts[0][-1:])
    tokenised = int(counts[-1][1]["forwarded"].total)
    print(json.dumps({"passed": kept, "tokenised": tokenised}))


if __name__ == "__main__":
    main()
