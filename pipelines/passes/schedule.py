"""*resolve schedule*: the recipe's schedule over the tokens that the shards hold, saved beside them for the trainer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.beam.base import ALL, DriverPass, Inputs, NothingLeftError
from pipelines.beam.work_list import Output
from pipelines.workspace import Job
from shards.finished import SCHEDULE_FILE, TRAINING_FILE
from shards.schedule.resolve import resolve
from shards.schedule.settings import ScheduleSettings
from shards.store import FileEntry, Store
from shards.training import ModelSettings, TrainSettings


@dataclass(frozen=True)
class ResolveSchedule(DriverPass):
    """Concrete phases, checked against the tokens of each domain, and the settings of the model and its training."""

    name: ClassVar[str] = "schedule"
    version: ClassVar[int] = 3
    files: ClassVar[tuple[str, ...]] = (SCHEDULE_FILE, TRAINING_FILE)

    tokens: Output
    schedule: ScheduleSettings
    model: ModelSettings
    training: TrainSettings

    def section(self) -> Any:
        """Return the schedule, model and training settings as the recipe states them."""
        return [table.model_dump(mode="json") for table in (self.schedule, self.model, self.training)]

    def work(self, job: Job, inputs: Inputs) -> None:
        """Resolve and save."""
        tokens = inputs.statistics(self.tokens)[ALL]
        if not any(tokens.values()):
            raise NothingLeftError("no training token survived, so there is nothing to schedule")
        schedule = resolve(self.schedule, tokens)
        training = {
            "model": self.model.model_dump(mode="json"),
            "training": self.training.model_dump(mode="json"),
        }
        files = {
            "schedule": _save(job.store, SCHEDULE_FILE, schedule.to_json()),
            "training": _save(job.store, TRAINING_FILE, json.dumps(training, indent=1) + "\n"),
        }
        statistics = {"digest": schedule.digest, "steps": schedule.steps, "tokens": schedule.tokens}
        job.commit(ALL, files, statistics)


def _save(store: Store, path: str, text: str) -> FileEntry:
    data = text.encode()
    store.write_bytes(path, data)
    return FileEntry.of(path, data)
