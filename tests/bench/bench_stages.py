"""CPU-seconds of every link of the chain beside the native library alone, on the same documents, in one run.

    .venv/bin/python tests/bench/bench_stages.py [--documents N] [--rounds N] [--only NAME] [--cold] [--json]

Nothing here asserts a time: results are read by people, and kept with their date in ``results/``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS")


def main() -> None:
    """Run the cases and print them."""
    options = _options()
    # Before any library is loaded: each reads these once. One thread, because a pass runs one process per core.
    os.environ.update(dict.fromkeys(THREADS, "1"), TOKENIZERS_PARALLELISM="false")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.cold:
            os.environ["NUMBA_CACHE_DIR"] = str(folder / "numba")
        _run(options, folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=800, help="documents of the corpus (default 800)")
    parser.add_argument("--stream-tokens", type=int, default=32_000_000, help="tokens of the stream's shards")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of measuring, in turns (default 5)")
    parser.add_argument("--seconds", type=float, default=0.1, help="CPU-seconds of a measurement, at least")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a case; may be repeated")
    parser.add_argument("--generated", action="store_true", help="leave the shared data aside")
    parser.add_argument(
        "--cold", action="store_true", help="compile every kernel anew, so that first calls say what it costs"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    return parser.parse_args()


def _run(options: argparse.Namespace, folder: Path) -> None:
    import machine
    import pyarrow as pa
    from harness import measure

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    facts, results = machine.facts(), []
    for origin, case in _cases(options, folder):
        if not options.only or case.name in options.only:
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            results.append(measure(case, options.rounds, options.seconds))
            facts["documents"] = origin
    first = "compiled anew" if options.cold else "compiled code from the cache, if it is there"
    facts |= {"rounds": options.rounds, "first calls": first}
    if not results:
        sys.exit(f"no case is called {' or '.join(options.only)}")
    if options.json:
        print(json.dumps({"machine": facts, "cases": [result.plain() for result in results]}, indent=1))
    else:
        machine.show(facts, results)


def _cases(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    import cases_moving
    import cases_read
    import cases_stream
    import cases_text
    import cases_train
    from corpus import make_corpus

    corpus = make_corpus(folder, options.documents, generated=options.generated)
    models = cases_text.Models(corpus, folder)
    origin = f"{len(corpus.texts)} documents, {corpus.text_bytes / 1e6:.1f} MB of text: {corpus.origin}"
    shards = folder / "shards"
    shards.mkdir()
    for cases in (
        cases_read.cases(corpus),
        cases_text.cases(corpus, models),
        cases_moving.cases(corpus, folder),
        cases_stream.cases(shards, options.stream_tokens),
        cases_train.cases(),
    ):
        for case in cases:
            yield origin, case


if __name__ == "__main__":
    main()
