"""Both Gopher heuristics beside an earlier commit, datatrove's and dolma's, each in its own environment, in turns.

bench_heuristics.py --base TREE --venv datatrove=PYTHON --venv dolma=PYTHON
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from corpus import _generated_prose, _shared_prose  # noqa: E402
from machine import facts  # noqa: E402

SCRIPT = Path(__file__).parent / "peers" / "gopher.py"
SHARES = {"datatrove": 20, "dolma": 4}
"""Of the slower ones, one document in so many."""


def started(stack: contextlib.ExitStack, library: str, python: str, path: Path | None, texts: Path) -> Any:
    search = os.pathsep.join([*([str(path)] if path else []), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = search if path else ""
    command = [python, str(SCRIPT), library, str(texts)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = stack.enter_context(subprocess.Popen(command, env=environment, text=True, bufsize=1, **pipes))
    stack.callback(process.stdin.close)
    if process.stdout.readline() != "ready\n":
        raise SystemExit(f"{library} does not start")
    return process


def worked(process: Any) -> float:
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--venv", action="append", default=[], metavar="LIBRARY=PYTHON")
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--generated", action="store_true")
    arguments = parser.parse_args()
    texts = [text for _, text in (_generated_prose if arguments.generated else _shared_prose)(arguments.documents)]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        contenders, sizes = {}, {}
        trees = {"ours": ROOT, **({"base commit": arguments.base} if arguments.base else {})}
        venvs = dict(one.split("=", 1) for one in arguments.venv)
        for label in [*trees, *venvs]:
            chosen = texts[:: SHARES.get(label, 1)]
            path = Path(name) / f"{label}.json"
            path.write_text(json.dumps(chosen))
            library, python = ("headrace", sys.executable) if label in trees else (label, venvs[label])
            contenders[label] = started(stack, library, python, trees.get(label), path)
            sizes[label] = sum(len(text.encode()) for text in chosen) / 1e6
            worked(contenders[label])
        rounds = [
            {label: worked(one) / sizes[label] for label, one in contenders.items()} for _ in range(arguments.rounds)
        ]
    print("\n".join(f"- {key}: {value}" for key, value in facts().items()))
    print("\n| both Gopher stages | MB/CPU-s | ours is so many times as fast |\n|---|---|---|")
    for label in contenders:
        rate = 1 / statistics.median(one[label] for one in rounds)
        print(f"| {label} | {rate:.2f} | {statistics.median(one[label] / one['ours'] for one in rounds):.2f} |")


if __name__ == "__main__":
    main()
