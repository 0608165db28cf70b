"""The stream beside other loaders, each in an environment of its own, on the same documents, in one run.

    for peer in mosaicml-streaming litdata grain; do python -m venv peers/$peer; peers/$peer/bin/pip install $peer; done
    .venv/bin/python tests/bench/bench_loaders.py --peers peers [--context 4096] [--tokens 100000000] [--json]

What every loader has to return are complete batches: tokens and targets (int64), positions and document numbers
(int32), of web-like documents in shuffled order, in this process. Rows are cut beforehand for those that do not pack,
and completed by the same numpy code. headrace packs, and also says which document each span comes from.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from linked_shards import VOCABULARY, web_like

HERE = Path(__file__).parent / "peers"
MEAN_TOKENS = 1_000
WAYS = (
    # Loader, environment, reader, way to serve, whether it shuffles globally.
    ("headrace", None, "headrace_reader.py", "complete", True),
    ("mosaicml-streaming, naive", "mosaicml-streaming", "streaming_reader.py", "naive", True),
    ("mosaicml-streaming, py1e", "mosaicml-streaming", "streaming_reader.py", "py1e", False),
    ("litdata", "litdata", "litdata_reader.py", "complete", False),
    ("grain, rows", "grain", "grain_reader.py", "rows", True),
    ("grain, packed", "grain", "grain_reader.py", "packed", True),
    ("memmap, random windows", None, "memmap_reader.py", "complete", False),
    ("headrace, tokens alone", None, "headrace_reader.py", "tokens", True),
    ("memmap, tokens alone", None, "memmap_reader.py", "tokens", False),
)


def main() -> None:
    """Write the documents, let each loader write its own files, and measure all of them in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments; without it, none is measured")
    parser.add_argument("--context", type=int, default=4_096)
    parser.add_argument("--documents", type=int, default=200_000, help="documents of 1,000 tokens on average")
    parser.add_argument("--tokens", type=int, default=100_000_000, help="tokens to serve in each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = _measure(options, Path(name))
    print(json.dumps(found, indent=1) if options.json else _table(found))


def _measure(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, object]]:
    _write_documents(folder, options.documents)
    prepared: set[str] = set()
    found: dict[str, dict[str, object]] = {}
    ways = [way for way in WAYS if way[1] is None or (options.peers and _python(options, way[1]).exists())]
    for _ in range(options.rounds):
        for name, environment, reader, what, is_global in ways:
            place = folder / reader
            if reader not in prepared:
                prepared.add(reader)
                place.mkdir()
                _run(options, environment, reader, "prepare", folder, place)
            said = json.loads(_run(options, environment, reader, what, folder, place).splitlines()[-1])
            result = found.setdefault(name, {"global": is_global, "rounds": []})
            result["rounds"].append(said["tokens"] / said["cpu_seconds"])  # type: ignore[attr-defined]
    for result in found.values():
        result["tokens per CPU-second"] = statistics.median(result["rounds"])  # type: ignore[call-overload]
    return found


def _python(options: argparse.Namespace, environment: str | None) -> Path:
    return Path(sys.executable) if environment is None else options.peers / environment / "bin" / "python"


def _run(options: argparse.Namespace, environment: str | None, reader: str, what: str, *places: Path) -> str:
    sizes = (str(options.context), str(options.tokens))
    command = (_python(options, environment), HERE / reader, what, *places, *sizes)
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{reader} {what} failed:\n{ran.stderr}")
    return ran.stdout


def _write_documents(folder: Path, count: int) -> None:
    rng = np.random.default_rng(1)
    lengths = web_like(count, MEAN_TOKENS, rng)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(1, VOCABULARY, int(offsets[-1]), np.uint16)
    tokens[offsets[1:] - 1] = 0
    tokens.tofile(folder / "tokens.bin")
    offsets.astype(np.int64).tofile(folder / "offsets.bin")


def _table(found: dict[str, dict[str, object]]) -> str:
    ours = found["headrace"]["tokens per CPU-second"]
    lines = []
    for name, result in found.items():
        speed = result["tokens per CPU-second"]
        order = "global" if result["global"] else "in part"
        lines.append(f"{name:<28} {order:<8} {speed / 1e6:8.1f} M tokens/CPU-s {ours / speed:6.2f} x")  # type: ignore[operator]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
