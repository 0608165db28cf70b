"""What a result is worth nothing without: the machine, the versions, the commit; and the tables."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness import Result
from rich import box
from rich.console import Console
from rich.table import Table

LIBRARIES = (
    "apache-beam",
    "datasketch",
    "fasttext",
    "fastokens",
    "fastwarc",
    "kenlm-ex",
    "numba",
    "numpy",
    "pyarrow",
    "resiliparse",
    "tokenizers",
    "torch",
    "zstandard",
)


def facts() -> dict[str, object]:
    """Return date, processor, cores, load, versions and commit."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    versions = []
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} absent")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load at start": round(os.getloadavg()[0], 1),
        "python": f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}",
        "versions": ", ".join(versions),
        "commit": _commit(),
    }


def _commit() -> str:
    def git(*words: str) -> str:
        folder = Path(__file__).parent
        return subprocess.run(("git", *words), cwd=folder, capture_output=True, text=True, check=True).stdout

    try:
        packages = [f":/{name}" for name in ("shards", "stages", "pipelines", "trainer")]
        changed = sorted(line[3:] for line in git("status", "--porcelain", "--", *packages).splitlines())
        commit = git("rev-parse", "--short=12", "HEAD").strip()
        return commit + (f", and uncommitted changes in {', '.join(changed)}" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "not a checkout"


def show(facts: dict[str, object], results: Sequence[Result]) -> None:
    """Print the facts, and a line for each case and each of its floors."""
    console = Console(width=170)
    for name, fact in facts.items():
        console.print(f"- {name}: {fact}", highlight=False, soft_wrap=True)
    table = Table(box=box.MARKDOWN)
    table.add_column("link")
    for column in ("CPU-s", "docs/CPU-s", "MB/CPU-s", "M tokens/CPU-s", "spread", "first call"):
        table.add_column(column, justify="right")
    table.add_column("floor", no_wrap=True)
    table.add_column("CPU-s", justify="right")
    table.add_column("ratio", justify="right")
    for result in results:
        case, seconds = result.case, result.seconds
        ours = [
            case.name,
            f"{seconds:.4f}",
            f"{case.documents / seconds:,.0f}",
            f"{case.input_bytes / seconds / 1e6:,.1f}" if case.input_bytes else "",
            f"{case.tokens / seconds / 1e6:,.4g}" if case.tokens else "",
            f"{result.spread:.0%}",
            f"{result.first:.2f}",
        ]
        for name in result.floors:
            table.add_row(*ours, name, f"{result.floor_seconds(name):.4f}", f"{result.ratio(name):.2f}")
            ours = [""] * len(ours)
    console.print(table)
    for result in results:
        if result.case.note:
            console.print(f"- {result.case.name}: {result.case.note}", highlight=False, soft_wrap=True)
