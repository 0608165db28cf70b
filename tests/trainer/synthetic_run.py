"""The folder of a finished run, written in a moment: shards of learnable tokens, a schedule, and settings."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from shards.finished import CONTRACT, DIGESTS_FILE
from shards.manifest import PassFolder
from shards.marker import Marker
from shards.schedule.resolve import resolve
from shards.schedule.settings import ScheduleSettings
from shards.sealed import digest_of, write_sealed
from shards.store import FileEntry, Store
from tests.shards.small_shards import Written, write_catalog, write_shard

MODEL = {"layers": 2, "width": 32, "heads": 2, "ffn_width": 48}
TRAINING = {"precision": "fp32", "micro_batch_tokens": 128, "checkpoint_every_steps": 4, "evaluate_tokens": 2_000}
PHASES = [
    {
        "name": "base",
        "tokens": 5 * 256,
        "context_tokens": 32,
        "batch_tokens": 256,
        "learning_rate": {"shape": "cosine", "start": 3e-3, "end": 1e-3, "warmup_tokens": 512},
    },
    {
        "name": "long",
        "tokens": 3 * 256,
        "context_tokens": 64,
        "batch_tokens": 256,
        "rope": {"kind": "yarn"},
        "learning_rate": {"shape": "constant"},
    },
    {
        "name": "anneal",
        "tokens": 3 * 384,
        "context_tokens": 128,
        "batch_tokens": 384,
        "weights": {"books": 3.0, "web": 1.0},
        "rope": {"kind": "yarn"},
        "learning_rate": {"shape": "linear", "end": 0.0},
    },
]


def write_run(
    folder: Path,
    *,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    phases: list[dict[str, Any]] | None = None,
    vocabulary: int = 300,
    documents: int = 150,
    mean_length: float = 25.0,
    held_out: bool = True,
    exact_epochs: int | None = None,
) -> Path:
    """Write the folder and return it. The same arguments are only worked out once, and copied from then on."""
    key = json.dumps([model, training, phases, vocabulary, documents, mean_length, held_out, exact_epochs])
    if key not in _written:
        _written[key] = Path(_templates.name, str(len(_written)))
        _write_run(
            _written[key],
            model=model,
            training=training,
            phases=phases,
            vocabulary=vocabulary,
            documents=documents,
            mean_length=mean_length,
            held_out=held_out,
            exact_epochs=exact_epochs,
        )
    shutil.copytree(_written[key], folder, dirs_exist_ok=True)
    return folder


_templates = tempfile.TemporaryDirectory(prefix="headrace-runs-")
_written: dict[str, Path] = {}


def _write_run(
    folder: Path,
    *,
    model: dict[str, Any] | None,
    training: dict[str, Any] | None,
    phases: list[dict[str, Any]] | None,
    vocabulary: int,
    documents: int,
    mean_length: float,
    held_out: bool,
    exact_epochs: int | None,
) -> None:
    shards = folder / "shards"
    shards.mkdir(parents=True)
    generator = np.random.default_rng(11)
    # Each token has few successors, so that a model can learn something in ten steps.
    successors = generator.integers(1, vocabulary, (vocabulary, 3))
    domains = {}
    for number, domain in enumerate(("books", "web")):
        texts = {
            "train": _texts(successors, documents, mean_length, generator),
            "held_out": _texts(successors, documents // 8 if held_out else 0, mean_length, generator),
        }
        entries = {
            subset: (
                write_shard(
                    shards,
                    f"{domain}-{subset}",
                    found,
                    domain=domain,
                    subset=subset,
                    vocab_size=vocabulary,
                    source=number,
                ),
            )
            for subset, found in texts.items()
            if found
        }
        domains[domain] = Written(**entries)
    catalog = write_catalog(shards, domains, vocabulary)
    length = {"default_max_epochs": 1e6} if exact_epochs is None else {"exact_epochs": exact_epochs}
    settings = ScheduleSettings.model_validate({"phases": phases or PHASES, **length})
    recipe = {"schedule": settings.model_dump(mode="json")}
    write_sealed(Store(folder), "recipe.json", {"base": "", "recipe": recipe})
    (folder / "schedule.json").write_text(resolve(settings, catalog.tokens_per_domain("train")).to_json())
    write_settings(folder, model=model, training=training)


def write_settings(
    folder: Path,
    *,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    finished: bool = True,
) -> None:
    """Write ``train.json`` as a run that then finished, or without ``finished`` as one that was killed before."""
    value = {"model": model or MODEL, "training": {**TRAINING, **(training or {})}}
    (folder / "train.json").write_text(json.dumps(value))
    if finished:
        finish(folder)


def finish(folder: Path) -> None:
    """Write what the driver writes at the end of a run: manifests that name the existing files, and the digests."""
    store = Store(folder)
    files: dict[str, dict[str, FileEntry]] = {name: {} for name, _, _ in CONTRACT}
    for name, kind, path in CONTRACT:
        if store.exists(path):
            files[name][kind] = FileEntry.of(path, store.read_bytes(path))
    digests = {name: digest_of(f"digest of {name}") for name in files}
    for name, listed in files.items():
        finished = PassFolder(store, name, digests[name])
        finished.commit(Marker("all", listed))
        finished.finish(["all"])
    write_sealed(store, DIGESTS_FILE, digests)


def _texts(
    successors: np.ndarray, documents: int, mean_length: float, generator: np.random.Generator
) -> list[np.ndarray]:
    if not documents:
        return []
    lengths = np.maximum(2, generator.lognormal(np.log(mean_length), 0.8, documents)).astype(int)
    return [_walk(successors, length - 1, generator) for length in lengths]


def _walk(successors: np.ndarray, length: int, generator: np.random.Generator) -> np.ndarray:
    token, out = 1, np.empty(length, np.int64)
    for at, choice in enumerate(generator.integers(0, 3, length)):
        token = out[at] = successors[token, choice]
    return out


def losses(folder: Path) -> list[float]:
    """Return the training loss of every step in the log."""
    return [line["loss"] for line in log(folder, "train")]


def log(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of the log, all of them or those of a kind."""
    lines = [json.loads(line) for line in (folder / "train-log.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (None, line["kind"])]
