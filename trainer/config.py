"""A training job, read from the folder of a finished run and checked as a whole, without torch."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shards.errors import UserError
from shards.finished import SCHEDULE_FILE, TRAINING_FILE, require_finished
from shards.manifest import digest_of
from shards.rank_memory import optimizer_bytes, rank_bytes
from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from shards.store import Store
from shards.training import DEFAULT_MICRO_BATCH_TOKENS, Bf16, ModelSettings, TrainSettings, parse_settings
from trainer.branches import branch_folder, branch_schedule

_FINISHED: Final = "finished.json"

# Where it is computed, and how often something is evaluated or saved. Every other setting changes the weights.
_FREE: Final = frozenset(
    {
        "zero",
        "shard_ranks",
        "reduce_once",
        "attention",
        "steps_ahead",
        "recompute",
        "recompute_every",
        "checkpoint_every_steps",
        "keep_checkpoints",
        "keep_every_steps",
        "asynchronous_checkpoints",
        "peak_flops",
        "spike_rollback_steps",
        "evaluate_every_steps",
        "evaluate_tokens",
    }
)

# "auto" is resolved when training starts; the result is compared instead (``trainer.bf16.choose_bf16``).
_RESOLVED_AT_START: Final = frozenset({"bf16"})


@dataclass(frozen=True)
class Job:
    """Everything that a training needs, and where its output goes: log, checkpoints and weights, beside the shards."""

    folder: Path
    model: ModelSettings
    training: TrainSettings
    schedule: Schedule
    vocabulary: int
    shards_digest: str
    branch: str | None = None

    @classmethod
    def load(cls, folder: Path, branch: str | None = None) -> Job:
        """Read and check a folder that ``headrace run`` finished: ``train.json``, ``schedule.json`` and ``shards``.

        With ``branch``, the schedule is the branch's, and the output goes into its folder.

        Raises:
            IncompleteError: if the run is not finished, or a file has changed since it finished.
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
        path = folder / SCHEDULE_FILE
        schedule = Schedule.from_json(path.read_bytes(), str(path))
        if branch is not None:
            schedule = branch_schedule(folder, branch)
        catalog = ShardSet.open(folder / "shards").catalog
        return cls(folder, model, training, schedule, catalog.vocab_size, catalog.digest, branch)

    @property
    def output(self) -> Path:
        """Folder of what this training writes: the run's, or the branch's."""
        return self.folder if self.branch is None else branch_folder(self.folder, self.branch)

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint belongs to: everything that decides the weights, as digests or values, by name.

        Where they are computed (ranks, ZeRO) and how often something is saved may change on resume.
        """
        settings = self.training.model_dump(mode="json", exclude=set(_FREE | _RESOLVED_AT_START))
        if self.training.micro_batch_rows is None:
            # Spelling out the default changes nothing.
            settings["micro_batch_tokens"] = self.training.micro_batch_tokens or DEFAULT_MICRO_BATCH_TOKENS
        return {
            "model": digest_of(self.model.model_dump(mode="json") | {"vocabulary": self.vocabulary}),
            "schedule": self.schedule.digest,
            "shards": self.shards_digest,
            **{name: json.dumps(value) for name, value in settings.items()},
        }

    @property
    def log_path(self) -> Path:
        """JSON lines: losses per step and domain. Holds no times, so that equal trainings write equal bytes."""
        return self.output / "train-log.jsonl"

    @property
    def timings_path(self) -> Path:
        """JSON lines: seconds and tokens per second of each step."""
        return self.output / "train-timings.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        """Folder of the checkpoints."""
        return self.output / "checkpoints"

    @property
    def stream_states_path(self) -> Path:
        """JSON lines: the stream's state before every hundredth step, from which other steps are found."""
        return self.output / "stream-states.jsonl"

    @property
    def fitted_path(self) -> Path:
        """Folder of what exact epochs came to, in steps."""
        return self.folder / "fitted"

    @property
    def weights_path(self) -> Path:
        """Folder of the final weights."""
        return self.output / "weights"

    def mark_finished(self, step: int, bf16: Bf16 | None) -> None:
        """Record, after everything else is written, that training is finished and the weights are complete."""
        Store(self.weights_path).write_json(_FINISHED, {"step": step, "identity": self.identity, "bf16": bf16})
        Store(self.weights_path).clear_scratch()

    def remove_weights(self) -> None:
        """Remove the final weights, their marker first."""
        (self.weights_path / _FINISHED).unlink(missing_ok=True)
        if self.weights_path.exists():
            shutil.rmtree(self.weights_path)

    @property
    def is_finished(self) -> bool:
        """True if the final weights of exactly this job exist."""
        path = self.weights_path / _FINISHED
        if not path.is_file():
            return False
        said = _read_json(path)
        if not isinstance(said, dict) or said.get("identity") != self.identity:
            return False
        return self.training.bf16 in ("auto", said.get("bf16"))

    def bytes_per_rank(self, ranks: int) -> int:
        """Estimate the peak memory of one rank in bytes, from the settings alone."""
        contexts = [phase.context_tokens for phase in self.schedule.phases]
        return rank_bytes(self.model, self.training, self.vocabulary, contexts, ranks)

    def require_memory(self, ranks: int, available: int) -> None:
        """Check that training fits in ``available`` bytes of memory.

        Raises:
            UserError: if not, with both figures and what to change.
        """
        needed = ranks * self.bytes_per_rank(ranks)
        if needed > available:
            raise UserError(
                f"training on {ranks} rank(s) needs about {needed / 2**30:.1f} GiB; "
                f"{available / 2**30:.1f} GiB are free",
                place=str(self.folder),
                remedy="Lower training.micro_batch_tokens or the size of the model, or use zero = 3",
            )

    def require_disk(self, available: int) -> None:
        """Check that checkpoints and weights fit in ``available`` bytes of disk.

        Raises:
            UserError: if not, with both figures and what to change.
        """
        # fp32 masters and the optimizer's state per checkpoint, and one more checkpoint while the newest is written.
        parameters = self.model.parameters(self.vocabulary)
        each = 4 * parameters + optimizer_bytes(self.model, self.training, self.vocabulary)
        needed = each * (self.training.keep_checkpoints + 1) + 4 * parameters
        if needed > available:
            raise UserError(
                f"checkpoints and weights need about {needed / 2**30:.2f} GiB of disk; "
                f"{available / 2**30:.2f} GiB are free",
                place=str(self.folder),
                remedy="Free some space, or lower training.keep_checkpoints or the size of the model",
            )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path.name} is not JSON: {error}", place=str(path), remedy="Run the recipe again") from error
