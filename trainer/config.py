"""A training job, read from a finished run's folder and checked as a whole, without torch."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from shards.errors import IncompleteError, UserError
from shards.manifest import digest_of
from shards.reader import ShardSet
from shards.schedule import Schedule
from shards.store import Store
from shards.training import ModelSettings, TrainSettings, parse_settings

# Values kept for the backward pass per token, layer and feature of width: inputs of every matrix product, norms,
# rotated queries and keys, and the gate's halves (8/3 of width each), counted over trainer/model.py.
_ACTIVATION_VALUES = 22
# Logits, their fp32 copy, its softmax and its gradient.
_LOGIT_BYTES = 16
_MAX_LOGITS = 1 << 26
_FINISHED = "finished.json"

# A process of torch before it holds anything.
_PROCESS_BYTES = 400 << 20


@dataclass(frozen=True)
class Job:
    """All that a training needs, and where its own output goes: log, checkpoints and weights, beside the shards."""

    folder: Path
    model: ModelSettings
    training: TrainSettings
    schedule: Schedule
    vocabulary: int
    shards_digest: str

    @classmethod
    def load(cls, folder: Path) -> Job:
        """Read and check a folder that ``headrace run`` finished: ``train.json``, ``schedule.json`` and ``shards``.

        Raises:
            UserError: if a file is missing or a setting is wrong.
        """
        tables = _read_json(folder / "train.json")
        if not isinstance(tables, dict) or not tables.keys() <= {"model", "training"}:
            raise UserError("train.json must hold the tables model and training", place=str(folder))
        place = str(folder / "train.json")
        model = parse_settings(ModelSettings, tables.get("model") or {}, f"{place}, [model]")
        training = parse_settings(TrainSettings, tables.get("training") or {}, f"{place}, [training]")
        try:
            schedule = Schedule.from_json((folder / "schedule.json").read_bytes())
        except FileNotFoundError:
            raise _unfinished(folder, "schedule.json") from None
        except pydantic.ValidationError as error:
            raise UserError(
                f"schedule.json is no schedule: {error.errors()[0]['msg']}",
                place=str(folder),
                remedy="Run the recipe again",
            ) from error
        shards = ShardSet.open(folder / "shards")
        digest = digest_of(json.loads(shards.catalog.to_json()))
        return cls(folder, model, training, schedule, shards.catalog.vocab_size, digest)

    @property
    def identity(self) -> dict[str, str]:
        """Digests of what a checkpoint belongs to. How it is computed (ranks, ZeRO, precision) may change meanwhile."""
        return {
            "model": digest_of(self.model.model_dump(mode="json") | {"vocabulary": self.vocabulary}),
            "schedule": self.schedule.digest,
            "seed": str(self.training.seed),
            "shards": self.shards_digest,
        }

    @property
    def log_path(self) -> Path:
        """JSON lines: losses per step and domain. Holds no clock, so that equal trainings give equal bytes."""
        return self.folder / "train-log.jsonl"

    @property
    def timings_path(self) -> Path:
        """JSON lines: seconds and tokens per second."""
        return self.folder / "train-timings.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        """Folder of checkpoints."""
        return self.folder / "checkpoints"

    @property
    def weights_path(self) -> Path:
        """Folder of the final weights."""
        return self.folder / "weights"

    def mark_finished(self, step: int) -> None:
        """Say, after everything else is written, that training is done and the weights are whole."""
        Store(self.weights_path).write_json(_FINISHED, {"step": step, "identity": self.identity})
        Store(self.weights_path).clear_scratch()

    def remove_weights(self) -> None:
        """Remove the final weights, their mark first."""
        (self.weights_path / _FINISHED).unlink(missing_ok=True)
        if self.weights_path.exists():
            shutil.rmtree(self.weights_path)

    @property
    def is_finished(self) -> bool:
        """True where the final weights of this very job are there."""
        path = self.weights_path / _FINISHED
        return path.is_file() and bool(_read_json(path).get("identity") == self.identity)

    def bytes_per_rank(self, ranks: int) -> int:
        """Estimate the most memory that one rank needs, from the settings alone."""
        model, compute = self.model, 2 if self.training.precision == "bf16" else 4
        state = self.training.bytes_per_parameter(ranks) * model.parameters(self.vocabulary)
        tokens = max(
            self.training.rows_per_micro_batch(stage.context_tokens) * stage.context_tokens
            for stage in self.schedule.stages
        )
        activations = tokens * model.layers * model.width * _ACTIVATION_VALUES * compute
        logits = min(tokens * self.vocabulary, _MAX_LOGITS) * _LOGIT_BYTES
        return int(state + activations + logits) + _PROCESS_BYTES

    def require_memory(self, ranks: int, available: int) -> None:
        """Refuse to start what cannot fit into ``available`` bytes of this machine.

        Raises:
            UserError: with both figures and what to change.
        """
        needed = ranks * self.bytes_per_rank(ranks)
        if needed > available:
            raise UserError(
                f"training on {ranks} rank(s) needs about {needed / 2**30:.1f} GiB; "
                f"{available / 2**30:.1f} GiB are free",
                place=str(self.folder),
                remedy="Lower training.micro_batch_tokens or the model's size, or use zero = 3",
            )


def available_memory() -> int | None:
    """Give the bytes of memory that this machine has free, None where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _unfinished(path.parent, path.name) from None
    except ValueError as error:
        raise UserError(f"{path.name} is not JSON: {error}", place=str(path)) from error


def _unfinished(folder: Path, missing: str) -> IncompleteError:
    return IncompleteError(
        f"there is no {missing}, so there is nothing to train on",
        place=str(folder),
        remedy="Finish it first: headrace run RECIPE --out DIR, with [schedule] and [training] in the recipe",
    )
