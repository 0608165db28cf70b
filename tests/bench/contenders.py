"""Work that ours and other libraries do in turns, each in a process of its own environment: see ``bench_peers.py``.

Run with a contender's name and a JSON list of texts; for every line on standard input it does the work once and says
the CPU-seconds that it took. Nothing of the project is imported but by contenders of its own.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PERMUTATIONS, SHINGLE_WORDS = 112, 5
"""Those of ``Fingerprint``: 16 bands of 7."""

TURNS = 8

Work = Callable[[], object]


def fingerprint(texts: list[str], _: str) -> Work:
    import pyarrow as pa

    from stages.judges.fingerprint import Fingerprint

    stage, batch = Fingerprint(), pa.record_batch({"text": pa.array(texts)})
    return lambda: stage.judge(batch)


def shingles(text: str) -> list[str]:
    words = text.lower().split()
    return [" ".join(words[at : at + SHINGLE_WORDS]) for at in range(max(1, len(words) - SHINGLE_WORDS + 1))]


def rensa(texts: list[str], _: str) -> Work:
    from rensa import RMinHash

    def work() -> None:
        for text in texts:
            signature = RMinHash(num_perm=PERMUTATIONS, seed=1)
            signature.update(shingles(text))
            signature.digest()

    return work


def datasketch(texts: list[str], _: str) -> Work:
    from datasketch import MinHash
    from xxhash import xxh32_intdigest

    def work() -> None:
        for text in texts:
            signature = MinHash(num_perm=PERMUTATIONS, hashfunc=xxh32_intdigest)
            signature.update_batch([shingle.encode() for shingle in shingles(text)])

    return work


def datatrove(texts: list[str], _: str) -> Work:
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature

    config = MinhashConfig(n_grams=SHINGLE_WORDS, num_buckets=16, hashes_per_bucket=7)
    step = MinhashDedupSignature(output_folder="unused", config=config)
    return lambda: [step.get_signature(step.get_shingles(text)) for text in texts]


def encode(texts: list[str], tokenizer: str) -> Work:
    from stages.tokenizer import Encoder

    encoder = Encoder(tokenizer)
    return in_turn(texts, encoder.encode)


def tokenizers(texts: list[str], tokenizer: str) -> Work:
    from tokenizers import Tokenizer

    loaded: Any = Tokenizer.from_file(tokenizer)
    return in_turn(texts, lambda some: loaded.encode_batch_fast(some, add_special_tokens=False))


def in_turn(texts: list[str], encode_some: Callable[[list[str]], object]) -> Work:
    """Encode other texts each time: a cache of words is warm, as in a run, but not of these texts."""
    parts = itertools.cycle([texts[part::TURNS] for part in range(TURNS)])

    def work() -> int:
        some = next(parts)
        encode_some(some)
        return len(some)

    return work


CONTENDERS = {work.__name__: work for work in (fingerprint, rensa, datasketch, datatrove, encode, tokenizers)}


def main() -> None:
    name, file, tokenizer = sys.argv[1:]
    texts = json.loads(Path(file).read_text("utf-8"))
    work = CONTENDERS[name](texts, tokenizer)
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        done = work()
        took = time.process_time() - started
        # As if it had done all.
        print(took * len(texts) / done if isinstance(done, int) else took, flush=True)


if __name__ == "__main__":
    main()
