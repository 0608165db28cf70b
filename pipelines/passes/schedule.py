"""*resolve schedule*: the recipe's schedule over the tokens that the shards hold, saved beside them for the trainer."""

from __future__ import annotations

import json
from typing import Any

from pipelines.beam.base import DriverPass
from pipelines.inspection.funnel import main_losses
from pipelines.workspace import Run
from shards.errors import UserError
from shards.finished import SCHEDULE_FILE, TRAINING_FILE
from shards.schedule.resolve import resolve
from shards.store import FileEntry, Store
from shards.training import ModelSettings, TrainSettings


class ResolveSchedule(DriverPass):
    """Concrete stages, checked against what each domain has, and the settings of model and training."""

    name = "schedule"
    upstream = ("catalog",)

    def section(self, run: Run) -> Any:
        """Schedule, model and training as the recipe says them."""
        recipe = run.recipe
        tables = (recipe.schedule, recipe.model, recipe.training)
        return [table.model_dump(mode="json") if table else None for table in tables]

    def work(self, run: Run) -> None:
        """Resolve and save; without a schedule, remove what an earlier recipe left, so that nobody trains on it."""
        recipe = run.recipe
        if recipe.schedule is None:
            for path in (SCHEDULE_FILE, TRAINING_FILE):
                if run.store.exists(path):
                    run.store.delete(path)
            run.commit(self.name, self.UNIT, {}, {})
            return
        tokens = run.folder("catalog").require(DriverPass.UNIT).statistics["train"]
        if not any(tokens.values()):
            raise UserError(
                "no training token survived, so there is nothing to schedule",
                place=f"{run.root}: {main_losses(run)}",
                remedy=f"Read what was dropped with 'headrace inspect {run.root}', and mend the recipe",
            )
        schedule = resolve(recipe.schedule, tokens)
        training = {
            "model": (recipe.model or ModelSettings()).model_dump(mode="json"),
            "training": (recipe.training or TrainSettings()).model_dump(mode="json"),
        }
        files = {
            "schedule": _save(run.store, SCHEDULE_FILE, schedule.to_json()),
            "training": _save(run.store, TRAINING_FILE, json.dumps(training, indent=1) + "\n"),
        }
        statistics = {"digest": schedule.digest, "steps": schedule.steps, "tokens": schedule.tokens}
        run.commit(self.name, self.UNIT, files, statistics)


def _save(store: Store, path: str, text: str) -> FileEntry:
    data = text.encode()
    store.write_bytes(path, data)
    return FileEntry.of(path, data)
