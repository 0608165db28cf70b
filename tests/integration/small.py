"""A small corpus with its recipe, for runs that are made to fail: every pass has something to do, in seconds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.integration.support import CHECKOUT, COMMAND
from tests.pipelines.conftest import make_corpus

Mount = Callable[..., Path]
"""Mounts a file system at a folder of a test's own, and returns the folder."""

RECIPE = """\
seed = 7
split_bytes = 30000
{sources}
[[domains]]
name = "wiki"
hosts = ["*.wiki.example"]
[[lm]]
language = "und"
corpus = ["reference.txt"]
order = 2
[[stages]]
use = "gopher_quality_v2"
min_words = 20
domains = ["web", "wiki"]
[[stages]]
use = "perplexity_v1"
min_perplexity = {{ percentile = 4.0, by = "language" }}
max_perplexity = {{ percentile = 96.0, by = "language" }}
[tokenizer]
vocab_size = 400
[shards]
held_out_share = 0.2
target_bytes = 8000
[schedule]
epochs = 1.0
[[schedule.phases]]
name = "base"
share = 1.0
context_tokens = 32
batch_tokens = 64
learning_rate = {{ shape = "linear", start = 0.001, end = 0.0 }}
"""
SOURCES = """\
[[sources]]
glob = "{place}web-*.jsonl"
domain = "web"
priority = 1
[[sources]]
glob = "{place}books.jsonl"
domain = "books"
licence = "CC0"
"""


def write_small(folder: Path, place: str = "") -> Path:
    """Write the corpus and the recipe, and return the recipe's path.

    Args:
        folder: an existing folder.
        place: where the recipe says that the sources are; beside it where this is empty.
    """
    make_corpus(folder)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(sources=SOURCES.format(place=place)), encoding="utf-8")
    return recipe


def start(*arguments: str | Path, temporary: Path | None = None, limit: str = "") -> subprocess.Popen[str]:
    """Start the command line in a process group of its own.

    Args:
        arguments: the command's.
        temporary: its folder for temporary files.
        limit: what is said to the shell before it.
    """
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    command = [*COMMAND, *map(str, arguments)]
    if limit:
        command = ["bash", "-c", f'{limit}; exec "$@"', "bash", *command]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process and return its exit code, and what it wrote on standard error."""
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def group(leader: int) -> list[int]:
    """Return the processes of a group that are alive, its leader included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, members, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(members) == leader and state != "Z":
            found.append(int(path.parent.name))
    return sorted(found)
