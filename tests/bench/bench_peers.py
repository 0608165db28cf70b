"""Fingerprints and tokens against an earlier commit and other libraries, each in its own environment, in turns.

    bench_peers.py --base TREE --venv rensa=PYTHON --venv datasketch=PYTHON --venv datatrove=PYTHON

``--base`` is a checkout of the commit to compare with; ``--venv`` names the Python of an environment with a library.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from corpus import _generated_prose, _shared_prose  # noqa: E402
from machine import facts  # noqa: E402

from stages.tokenizer import fit_bpe  # noqa: E402

CHARS = 3_600
VOCABULARY = 32_768
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS", "FASTOKENS_BPE_THREADS"), "1"
)


@dataclass
class Contender:
    """A process that does one thing when it is told to."""

    label: str
    work: str
    python: str
    path: Sequence[Path]
    texts: list[str]
    times: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self, folder: Path, tokenizer: Path) -> Iterator[subprocess.Popen[str]]:
        """Start it, wait until it is ready, and let it warm up once."""
        texts = folder / f"{len(self.texts)}.json"
        texts.write_text(json.dumps(self.texts), encoding="utf-8")
        search = os.pathsep.join([*map(str, self.path), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, **ONE_THREAD, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": search}
        command = [self.python, str(Path(__file__).with_name("contenders.py")), self.work, str(texts), str(tokenizer)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, env=environment, text=True, bufsize=1, **pipes) as process:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise SystemExit(f"{self.label} does not start")
            self.measure(process)
            self.times.clear()
            yield process
            process.stdin.close() if process.stdin else None

    def measure(self, process: subprocess.Popen[str]) -> None:
        """Let it work once."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        self.times.append(float(process.stdout.readline()))

    @property
    def rate(self) -> float:
        """Documents per CPU-second: the median over the rounds."""
        return len(self.texts) / statistics.median(self.times)

    @property
    def megabytes(self) -> float:
        """Megabytes of text per CPU-second."""
        return self.rate * sum(len(text.encode()) for text in self.texts) / len(self.texts) / 1e6


def compete(contenders: Sequence[Contender], rounds: int, tokenizer: Path, folder: Path) -> list[str]:
    """Let contenders work in turns, and return the rows of a table."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(contender.running(folder, tokenizer)) for contender in contenders]
        for _ in range(rounds):
            for contender, process in zip(contenders, processes, strict=True):
                contender.measure(process)
    ours = contenders[0]
    return [
        f"| {each.label} | {each.rate:,.0f} | {each.megabytes:,.2f} | {len(each.texts)} | {ours.rate / each.rate:.1f} |"
        for each in contenders
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--venv", action="append", default=[], metavar="LIBRARY=PYTHON")
    parser.add_argument("--documents", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--generated", action="store_true")
    arguments = parser.parse_args()
    prose = _generated_prose if arguments.generated else _shared_prose
    whole = [text for _, text in prose(arguments.documents)]
    texts = [text[at : at + CHARS] for text in whole for at in range(0, len(text), CHARS)]
    texts = [text for text in texts if len(text) > CHARS // 2][: arguments.documents]
    venvs = dict(each.split("=", 1) for each in arguments.venv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = folder / "tokenizer.json"
        tokenizer.write_text(fit_bpe(whole, VOCABULARY, "<|endoftext|>"), encoding="utf-8")
        signing = [Contender("ours", "fingerprint", sys.executable, [ROOT], texts)]
        encoding = [Contender("ours", "encode", sys.executable, [ROOT], texts)]
        if arguments.base:
            signing.append(Contender("base commit", "fingerprint", sys.executable, [arguments.base], texts))
            encoding.append(Contender("base commit", "encode", sys.executable, [arguments.base], texts[:300]))
        few = {"rensa": 300, "datasketch": 300, "datatrove": 60}
        signing += [Contender(each, each, python, [], texts[: few[each]]) for each, python in venvs.items()]
        encoding.append(Contender("tokenizers alone", "tokenizers", sys.executable, [ROOT], texts[:300]))
        print("\n".join(f"- {key}: {value}" for key, value in facts().items()))
        for title, contenders in (("fingerprint", signing), ("encode", encoding)):
            print(f"\n| {title} | docs/CPU-s | MB/CPU-s | documents | ours is so many times as fast |")
            print("|---|---|---|---|---|")
            print("\n".join(compete(contenders, arguments.rounds, tokenizer, folder)), flush=True)


if __name__ == "__main__":
    main()
