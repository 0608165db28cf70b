"""A training job, read from a finished run's folder and checked as a whole, without torch."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pydantic

from shards.errors import UserError
from shards.finished import SCHEDULE_FILE, TRAINING_FILE, require_finished
from shards.manifest import digest_of
from shards.memory import rank_bytes
from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from shards.store import Store
from shards.training import DEFAULT_MICRO_BATCH_TOKENS, Bf16, ModelSettings, TrainSettings, parse_settings

_FINISHED: Final = "finished.json"

# Who computes, and how often something is looked at or saved. Every other setting of training changes the weights.
_FREE: Final = frozenset(
    {"zero", "attention", "checkpoint_every_steps", "keep_checkpoints", "evaluate_every_steps", "evaluate_tokens"}
)

# "auto" is settled when training starts; what it came to is compared instead (``trainer.bf16.choose_bf16``).
_SETTLED_LATER: Final = frozenset({"bf16"})


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
            IncompleteError: if the run is not finished, or a file is not the one that it finished with.
            UserError: if a setting is wrong.
        """
        require_finished(folder)
        tables = _read_json(folder / TRAINING_FILE)
        if not isinstance(tables, dict) or not tables.keys() <= {"model", "training"}:
            raise UserError(
                "train.json must hold the tables model and training", place=str(folder), remedy="Run the recipe again"
            )
        place = str(folder / TRAINING_FILE)
        model = parse_settings(ModelSettings, tables.get("model") or {}, f"{place}, [model]")
        training = parse_settings(TrainSettings, tables.get("training") or {}, f"{place}, [training]")
        try:
            schedule = Schedule.from_json((folder / SCHEDULE_FILE).read_bytes())
        except pydantic.ValidationError as error:
            raise UserError(
                f"schedule.json is no schedule: {error.errors()[0]['msg']}",
                place=str(folder),
                remedy="Run the recipe again",
            ) from error
        catalog = ShardSet.open(folder / "shards").catalog
        return cls(folder, model, training, schedule, catalog.vocab_size, catalog.digest)

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint belongs to: all that the weights follow from, as digests or values, by name.

        Who computes them (ranks, ZeRO) and how often something is saved may change meanwhile.
        """
        settings = self.training.model_dump(mode="json", exclude=set(_FREE | _SETTLED_LATER))
        if self.training.micro_batch_rows is None:
            # The default is the same, said or not.
            settings["micro_batch_tokens"] = self.training.micro_batch_tokens or DEFAULT_MICRO_BATCH_TOKENS
        return {
            "model": digest_of(self.model.model_dump(mode="json") | {"vocabulary": self.vocabulary}),
            "schedule": self.schedule.digest,
            "shards": self.shards_digest,
            **{name: json.dumps(value) for name, value in settings.items()},
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

    def mark_finished(self, step: int, bf16: Bf16 | None) -> None:
        """Say, after everything else is written, that training is done and the weights are whole."""
        Store(self.weights_path).write_json(_FINISHED, {"step": step, "identity": self.identity, "bf16": bf16})
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
        if not path.is_file():
            return False
        said = _read_json(path)
        if not isinstance(said, dict) or said.get("identity") != self.identity:
            return False
        return self.training.bf16 in ("auto", said.get("bf16"))

    def bytes_per_rank(self, ranks: int) -> int:
        """Estimate the most memory that one rank needs, from the settings alone."""
        contexts = [stage.context_tokens for stage in self.schedule.stages]
        return rank_bytes(self.model, self.training, self.vocabulary, contexts, ranks)

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

    def require_disk(self, available: int) -> None:
        """Refuse to start where ``available`` bytes do not hold the checkpoints and the weights.

        Raises:
            UserError: with both figures and what to change.
        """
        # Master and two moments in fp32 for each checkpoint, one more while the newest is written; the weights in fp32.
        parameters = self.model.parameters(self.vocabulary)
        needed = parameters * (12 * (self.training.keep_checkpoints + 1) + 4)
        if needed > available:
            raise UserError(
                f"checkpoints and weights need about {needed / 2**30:.2f} GiB of disk; "
                f"{available / 2**30:.2f} GiB are free",
                place=str(self.folder),
                remedy="Free some, or lower training.keep_checkpoints or the model's size",
            )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path.name} is not JSON: {error}", place=str(path), remedy="Run the recipe again") from error
