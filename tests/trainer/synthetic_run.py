"""A finished run's folder, written in a moment: shards of learnable tokens, a schedule, and training settings."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shards.catalog import CATALOG_NAME, DomainShards, ShardCatalog, describe
from shards.finished import CONTRACT, DIGESTS_FILE
from shards.schedule.resolve import resolve
from shards.schedule.schedule import ScheduleSettings
from shards.store import FileEntry
from shards.writer import ShardWriter

END = 0
MODEL = {"layers": 2, "width": 32, "heads": 2, "ffn_width": 48}
TRAINING = {"precision": "fp32", "micro_batch_tokens": 128, "checkpoint_every_steps": 4, "evaluate_tokens": 2_000}
STAGES = [
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
    stages: list[dict[str, Any]] | None = None,
    vocabulary: int = 300,
    documents: int = 150,
    mean_length: float = 25.0,
    held_out: bool = True,
    exact_epochs: int | None = None,
) -> Path:
    """Write the folder and give it back."""
    shards = folder / "shards"
    shards.mkdir(parents=True)
    generator = np.random.default_rng(11)
    # Each token has few successors, so that a model can learn something in ten steps.
    successors = generator.integers(1, vocabulary, (vocabulary, 3))
    domains = {}
    for number, domain in enumerate(("books", "web")):
        entries: dict[str, list[Any]] = {"train": [], "held_out": []}
        for split, count in (("train", documents), ("held_out", documents // 8 if held_out else 0)):
            if not count:
                continue
            lengths = np.maximum(2, generator.lognormal(np.log(mean_length), 0.8, count)).astype(int)
            texts = [_walk(successors, n - 1, generator) for n in lengths]
            files = _write_shard(shards, domain, split, texts, number, vocabulary)
            entries[split].append(files)
        domains[domain] = DomainShards(train=tuple(entries["train"]), held_out=tuple(entries["held_out"]))
    dtype = "uint16" if vocabulary <= 65_536 else "uint32"
    catalog = ShardCatalog(
        token_dtype=dtype, vocab_size=vocabulary, end_of_text=END, tokenizer="synthetic", domains=domains
    )
    (shards / CATALOG_NAME).write_text(catalog.to_json())
    length = {"default_max_epochs": 1e6} if exact_epochs is None else {"exact_epochs": exact_epochs}
    settings = ScheduleSettings.model_validate({"stages": stages or STAGES, **length})
    (folder / "schedule.json").write_text(resolve(settings, catalog.tokens_per_domain("train")).to_json())
    write_settings(folder, model=model, training=training)
    return folder


def write_settings(
    folder: Path,
    *,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    finished: bool = True,
) -> None:
    """Write ``train.json``, as a run that then finished; as one that was killed before, without ``finished``."""
    value = {"model": model or MODEL, "training": {**TRAINING, **(training or {})}}
    (folder / "train.json").write_text(json.dumps(value))
    if finished:
        finish(folder)


def finish(folder: Path) -> None:
    """Write what the driver does at a run's end: the manifests of passes that name what is there, and the digests."""
    files: dict[str, dict[str, Any]] = {name: {} for name, _, _ in CONTRACT}
    for name, kind, path in CONTRACT:
        if (folder / path).exists():
            files[name][kind] = asdict(FileEntry.of(path, (folder / path).read_bytes()))
    digests = {name: f"digest of {name}" for name in files}
    for name, listed in files.items():
        (folder / name).mkdir(exist_ok=True)
        units = [{"unit": "all", "files": listed, "statistics": {}}]
        manifest = {"format": 1, "pass": name, "digest": digests[name], "statistics": {}, "units": units}
        (folder / name / "manifest.json").write_text(json.dumps(manifest))
    (folder / DIGESTS_FILE).write_text(json.dumps(digests))


def _walk(successors: np.ndarray, length: int, generator: np.random.Generator) -> np.ndarray:
    token, out = 1, np.empty(length, np.int64)
    for at, choice in enumerate(generator.integers(0, 3, length)):
        token = out[at] = successors[token, choice]
    return out


def _write_shard(folder: Path, domain: str, split: Any, texts: list[np.ndarray], source: int, vocabulary: int) -> Any:
    writer = ShardWriter(
        folder,
        domain=domain,
        split=split,
        vocab_size=vocabulary,
        end_of_text=END,
        tokenizer_digest="synthetic",
        name=f"{domain}-{split}",
    )
    ids = np.arange(len(texts))
    companion = pa.RecordBatch.from_pydict(
        {
            "doc_id": pa.array(ids),
            "url": pa.array([f"https://{domain}.example/{i}" for i in ids], pa.string()),
            "content_hash": pa.nulls(len(ids), pa.binary(16)),
            "language": pa.array(["en"] * len(ids), pa.string()),
            "source_index": pa.array([source] * len(ids), pa.int32()),
            "offset": pa.array(ids),
        }
    )
    writer.add(np.concatenate(texts), np.cumsum([0, *map(len, texts)], dtype=np.int64), companion)
    files = writer.close()
    return describe(files, tokens=files.tokens_path.name, documents=files.documents_path.name)


def losses(folder: Path) -> list[float]:
    """Return the training losses of every step in the log."""
    return [line["loss"] for line in log(folder, "train")]


def log(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of the log, all or those of a kind."""
    lines = [json.loads(line) for line in (folder / "train-log.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (None, line["kind"])]
