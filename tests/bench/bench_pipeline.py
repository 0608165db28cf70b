"""A whole run beside datatrove's closest pipeline, on the same documents: CPU-seconds, peak memory, documents kept.

    bench_pipeline.py --datatrove PYTHON [--documents 800] [--rounds 3]

Both read gzip JSONL and do language (lid.176.ftz), both Gopher filters, MinHash of 16 x 7 over five words, and tokens
by the same ``tokenizer.json``; each in one worker. Processor time is of a process and all its children.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from corpus import _generated_prose, _shared_prose  # noqa: E402
from machine import facts  # noqa: E402

from stages.judges.language import default_model  # noqa: E402
from stages.tokenizer import fit_bpe  # noqa: E402

RECIPE = """
name = "beside"
[[sources]]
glob = "in/*.jsonl.gz"
[[stages]]
use = "language_v1"
keep = ["en"]
[[stages]]
use = "gopher_repetition_v2"
[[stages]]
use = "gopher_quality_v2"
[dedup]
exact = false
[tokenizer]
file = "tokenizer.json"
end_of_text = "<|endoftext|>"
"""


def measured(command: list[str], path: Path | None) -> tuple[float, float, str]:
    """Return CPU-seconds and peak megabytes of a command and its children, and its last line."""
    code = (
        "import json,resource,subprocess,sys\n"
        "out=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE,text=True,check=True).stdout\n"
        "use=resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([use.ru_utime+use.ru_stime,use.ru_maxrss/1024,out]))"
    )
    # One thread each, as a pass runs one process for each core.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("PYTHONPATH", None)
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH")])])
    said = subprocess.run(
        [sys.executable, "-c", code, *command], env=environment, capture_output=True, text=True, check=True
    )
    seconds, megabytes, out = json.loads(said.stdout)
    return seconds, megabytes, out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datatrove", required=True, metavar="PYTHON")
    parser.add_argument("--base", type=Path, help="a checkout of an earlier commit")
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--generated", action="store_true")
    arguments = parser.parse_args()
    prose = (_generated_prose if arguments.generated else _shared_prose)(arguments.documents)
    rows: dict[str, list[tuple[float, float, str]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        with gzip.open(folder / "in" / "documents.jsonl.gz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps({"text": text, "url": url, "id": url}) + "\n" for url, text in prose)
        (folder / "tokenizer.json").write_text(fit_bpe([text for _, text in prose], 16_384, "<|endoftext|>"))
        (folder / "recipe.toml").write_text(RECIPE)
        peer = Path(__file__).parent / "peers" / "datatrove_pipeline.py"
        run = [sys.executable, "-c", "from pipelines.cli import main; main()", "run", str(folder / "recipe.toml")]
        run += ["--out", str(folder / "out"), "--workers", "1", "--no-train", "--json"]
        trees = {"ours": ROOT, **({"base commit": arguments.base} if arguments.base else {})}
        for number in range(arguments.rounds + 1):
            for label, tree in trees.items():
                shutil.rmtree(folder / "out", ignore_errors=True)
                found = measured(run, tree)
                # The first round compiles kernels.
                if number:
                    rows.setdefault(label, []).append(found)
            if number:
                for left in set(folder.iterdir()) - {folder / "in", folder / "tokenizer.json", folder / "recipe.toml"}:
                    shutil.rmtree(left)
                command = [arguments.datatrove, str(peer), str(folder), default_model(), str(folder / "tokenizer.json")]
                rows.setdefault("datatrove", []).append(measured(command, None))
    print("\n".join(f"- {key}: {value}" for key, value in facts().items()))
    print(f"- documents: {len(prose)}, {sum(len(text.encode()) for _, text in prose) / 1e6:.1f} MB of text\n")
    print("| pipeline | CPU-s | ours is so many times as fast | peak MB | said |\n|---|---|---|---|---|")
    for label, found in rows.items():
        ratio = statistics.median(other[0] / own[0] for own, other in zip(rows["ours"], found, strict=True))
        seconds, peak = (statistics.median(one[at] for one in found) for at in (0, 1))
        print(f"| {label} | {seconds:.2f} | {ratio:.1f} | {peak:.0f} | {_said(found[-1][2])} |")


def _said(out: str) -> str:
    at = out.find("{")
    try:
        told = json.loads(out[at:])
    except ValueError:
        return out.strip().splitlines()[-1]
    stages = told.get("stages")
    return f"kept {stages[-1]['kept']}" if stages else json.dumps(told)


if __name__ == "__main__":
    main()
