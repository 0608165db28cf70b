"""Deduplication of generated documents at several sizes: what each pass costs a document, and what a worker holds.

    .venv/bin/python tests/bench/bench_dedup.py [--sizes 10000 100000 1000000] [--workers 1] [--json]

Documents are short, so that the passes over keys are a large part: unique ones, copies, near-duplicates, pages of one
template. Whole runs are made up to *drops*. Nothing asserts a time: results are kept with their date in ``results/``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from pipelines import cost_files
from pipelines.beam.runners import LocalRunner
from pipelines.driver import check, curate
from pipelines.inspection.funnel import duplicates
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.workspace import Workspace

SIZES = (10_000, 100_000, 1_000_000)
WORDS = 80
FILE_DOCUMENTS = 50_000
GROUPING = ("near_bands", "near_buckets", "near_components")
VERIFYING = ("near",)
DEDUPLICATION = (
    "exact_keys",
    "exact",
    *GROUPING,
    "near_sets",
    "near",
    "near_witnesses",
    "duplicates",
)


class Silent:
    """A reporter that says nothing."""

    def begin(self, name: str, total: int, done: int, *, is_bytes: bool) -> None:
        """Say nothing."""

    def advance(self, done: int) -> None:
        """Say nothing."""

    def end(self, note: str) -> None:
        """Say nothing."""


def documents(count: int, seed: int) -> Iterator[str]:
    """Yield texts: of ten, seven unique, one a copy, one a near-duplicate, one a page of the only template."""
    rng = np.random.default_rng(seed)
    template = rng.integers(0, 10**6, WORDS // 2)
    earlier = rng.integers(0, 10**6, (100, WORDS))
    for number in range(count):
        kind = number % 10
        words = rng.integers(0, 10**6, WORDS)
        if kind == 7:
            words = earlier[rng.integers(len(earlier))]
        elif kind == 8:
            words = earlier[rng.integers(len(earlier))].copy()
            words[rng.integers(WORDS)] = rng.integers(0, 10**6)
        elif kind == 9:
            words[: len(template)] = template
        else:
            earlier[number % len(earlier)] = words
        yield " ".join(f"w{word}" for word in words.tolist())


def write(folder: Path, count: int) -> None:
    """Write so many documents, in files of equal size."""
    folder.mkdir(parents=True)
    for number, begin in enumerate(range(0, count, FILE_DOCUMENTS)):
        with (folder / f"{number:04d}.jsonl").open("w", encoding="utf-8") as out:
            for text in documents(min(FILE_DOCUMENTS, count - begin), number):
                out.write(json.dumps({"text": text}) + "\n")


def measure(folder: Path, count: int, workers: int) -> dict[str, Any]:
    """Make a run over so many documents up to *drops*, and return what its passes cost."""
    write(folder / "in", count)
    table = {"sources": [{"glob": "*.jsonl"}], "split_bytes": 8 << 20, "tokenizer": {"vocab_size": 300}}
    workspace = Workspace.of(str(folder / "out"), parse_recipe(table, "bench"), str(folder / "in"))
    with LocalRunner(workers) as runner:
        run = curate(workspace, check(workspace), runner, Silent(), last="drops")
    costs = cost_files.read(workspace.store)
    return {
        "splits": len(run.plan.splits),
        "units": {name: len(run.manifest(name).units) for name in run.digests},
        "cpu": {name: pc.sum(table.column("cpu_ns")).as_py() / 1e9 for name, table in costs.items()},
        "peak": {name: pc.max(table.column("peak_bytes")).as_py() for name, table in costs.items()},
        "bytes": {name: written(run, name) for name in run.digests},
        "comparisons": sum(marker.statistics["comparisons"] for marker in run.manifest("near").markers()),
        "duplicates": [vars(kind) for kind in duplicates(run)],
    }


def written(run: Run, name: str) -> int:
    """Return the bytes of the files of a pass."""
    return sum(entry.size for marker in run.manifest(name).markers() for entry in marker.files.values())


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="documents (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="local processes (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where runs are made (a folder for temporary files)")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        # A small run before: kernels are compiled, or loaded from disk, by the first that needs them.
        measure(Path(name) / "first", 500, options.workers)
        found = {size: measure(Path(name) / str(size), size, options.workers) for size in options.sizes}
    print(json.dumps(found, indent=1) if options.json else table_of(found))


def table_of(found: dict[int, dict[str, Any]]) -> str:
    """Return the costs as a table: microseconds of a document beyond those of the size before, and memory."""
    sizes = sorted(found)
    spans = list(itertools.pairwise(sizes))
    head = [f"{size:,} CPU-s" for size in sizes] + [f"{a:,}-{b:,} us each" for a, b in spans]
    lines = [f"{os.cpu_count()} processors", f"{'pass':<16}" + "".join(f"{name:>26}" for name in head) + "   peak MB"]
    for name in found[sizes[-1]]["cpu"]:
        seconds = [found[size]["cpu"].get(name, 0.0) for size in sizes]
        more = [after - before for before, after in itertools.pairwise(seconds)]
        each = [1e6 * cpu / (b - a) for (a, b), cpu in zip(spans, more, strict=True)]
        numbers = "".join(f"{value:>26.3f}" for value in [*seconds, *each])
        peaks = " ".join(f"{found[size]['peak'].get(name, 0) / 1e6:.0f}" for size in sizes)
        lines.append(f"{name:<16}{numbers}   {peaks}")
    for size in sizes:
        cpu = found[size]["cpu"]
        grouping, near = sum(cpu[name] for name in GROUPING), sum(cpu[name] for name in VERIFYING)
        total = sum(cpu[name] for name in DEDUPLICATION)
        lines.append(
            f"{size:,} documents in {found[size]['splits']} splits: grouping and components {size / grouping:,.0f} a "
            f"CPU-second; verification {near / total:.0%} of deduplication; {found[size]['comparisons'] / size:.2f} "
            f"comparisons a document; {found[size]['duplicates']}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
