"""CPU-seconds of the *write* pass here and in a checkout of an earlier commit, in turns, on the same documents.

    bench_write.py --base TREE [--documents N] [--rounds N] [--workers N]

Every run starts in an empty folder, without stages and deduplication, with one tokeniser that both are given.
"""

from __future__ import annotations

import argparse
import hashlib
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

import pyarrow as pa  # noqa: E402
from corpus import _generated_prose, _shared_prose  # noqa: E402
from machine import facts  # noqa: E402

from stages.tokenizer import fit_bpe  # noqa: E402

CHARS = 3_600
VOCABULARY = 32_768
RECIPE = """
name = "write"
[[sources]]
glob = "documents.jsonl"
domain = "web"
[dedup]
exact = false
near = false
[tokenizer]
file = "tokenizer.json"
"""


def run(tree: Path, recipe: Path, out: Path, workers: int) -> tuple[float, float, str]:
    """Run the recipe; return CPU-seconds of write, seconds on the clock of the pass, and a digest of all tokens."""
    path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    code = "import sys; from pipelines.cli import main; sys.argv = ['headrace', *sys.argv[1:]]; main()"

    def headrace(*words: str) -> str:
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=tree).stdout

    headrace("run", str(recipe), "--out", str(out), "--workers", str(workers))
    passes: list[dict[str, Any]] = json.loads(headrace("inspect", str(out), "--costs", "--json"))["costs"]["passes"]
    (write,) = (found for found in passes if found["name"] == "write")
    seconds = json.loads((out / "timings.json").read_text())["write"]
    return sum(stage["cpu_seconds"] for stage in write["stages"]), seconds, tokens_of(out)


def tokens_of(out: Path) -> str:
    """Return a digest of every document's tokens, in order of doc_id: wherever shards are cut."""
    found: dict[int, bytes] = {}
    for path in (out / "shards").rglob("*.tokens-*.arrow"):
        (companion,) = path.parent.glob(f"{path.name.partition('.')[0]}.documents-*.arrow")
        tokens = pa.ipc.open_file(path).read_all().column("tokens")
        ids = pa.ipc.open_file(companion).read_all().column("doc_id").to_pylist()
        found |= {key: row.values.to_numpy().tobytes() for key, row in zip(ids, tokens, strict=True)}
    return hashlib.sha256(b"".join(found[key] for key in sorted(found))).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--generated", action="store_true")
    arguments = parser.parse_args()
    whole = [text for _, text in (_generated_prose if arguments.generated else _shared_prose)(arguments.documents)]
    texts = [text[at : at + CHARS] for text in whole for at in range(0, len(text), CHARS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipe.toml").write_text(RECIPE)
        (folder / "tokenizer.json").write_text(fit_bpe(whole, VOCABULARY, "<|endoftext|>"), encoding="utf-8")
        with (folder / "documents.jsonl").open("w") as file:
            for number in range(arguments.documents):
                text = f"{texts[number % len(texts)]}\n{number}"
                file.write(json.dumps({"text": text, "url": f"https://example.org/{number}"}) + "\n")
        trees = {"ours": ROOT, "base commit": arguments.base.resolve()}
        found: dict[str, list[tuple[float, float, str]]] = {label: [] for label in trees}
        for round_ in range(arguments.rounds):
            for label, tree in trees.items():
                out = folder / f"{label.split()[0]}-{round_}"
                found[label].append(run(tree, folder / "recipe.toml", out, arguments.workers))
    if len({digest for rows in found.values() for *_, digest in rows}) != 1:
        raise SystemExit("the tokens differ")
    print("\n".join(f"- {key}: {value}" for key, value in facts().items()))
    print(f"- {arguments.documents} documents, {min(len(texts), arguments.documents)} of them different")
    print(f"- {arguments.workers} workers; the same tokens in every run\n")
    print("| write | CPU-s | seconds | ours is so many times as fast, in CPU-s |\n|---|---|---|---|")
    ours = statistics.median(cpu for cpu, *_ in found["ours"])
    for label, rows in found.items():
        cpu, wall = (statistics.median(column) for column in list(zip(*rows, strict=True))[:2])
        print(f"| {label} | {cpu:.2f} | {wall:.2f} | {cpu / ours:.1f} |")


if __name__ == "__main__":
    main()
