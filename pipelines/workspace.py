"""A run's folder: the resolved recipe, the source and split tables, and one folder per pass.

What a worker needs is a folder's name, a digest, and the units that it is given: that is all that Beam ships.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.beam import meter
from pipelines.recipe import Recipe, StageUse
from shards.errors import UserError
from shards.lock import LOCK_FILE
from shards.manifest import Marker, PassFolder
from shards.owner import MARK
from shards.sealed import read_sealed, write_sealed
from shards.store import SCRATCH, FileEntry, Store

RECIPE_FILE = "recipe.json"
RUN_FILE = "plan/run.json"
"""Names the run that the folder belongs to at the moment, so that a worker of an earlier one commits nothing."""


@dataclass(frozen=True)
class Workspace:
    """The output folder of a recipe, with the recipe and the folder that its paths are relative to."""

    store: Store
    recipe: Recipe
    base: str
    judged: tuple[StageUse, ...] = ()
    """The stages as the verdicts were made with, where limits were moved since; empty where they are the recipe's."""

    def as_judged(self) -> Workspace:
        """Return the workspace with the stages that the verdicts are made with."""
        return replace(self, recipe=self.recipe.model_copy(update={"stages": self.judged})) if self.judged else self

    @classmethod
    def of(cls, root: str, recipe: Recipe, base: str) -> Workspace:
        """Return the workspace of a recipe, without touching the folder yet.

        Raises:
            UserError: if the folder holds files that are not a run's.
        """
        store = Store(root)
        if (local := store.local_path(".")) is not None and local.exists() and not local.is_dir():
            raise UserError("the output folder is a file", place=root, remedy="Name a folder, or a new name")
        # What a driver leaves that ended before it saved its recipe is no reason to refuse the next one.
        if not store.exists(RECIPE_FILE) and any(
            not name.startswith((LOCK_FILE, SCRATCH, MARK)) for name in store.list(".")
        ):
            raise UserError(
                "the output folder holds files that do not belong to a run",
                place=root,
                remedy="Name an empty folder, or the folder of an earlier run to resume it",
            )
        return cls(store, recipe, os.path.abspath(base))

    def save_recipe(self) -> None:
        """Save the recipe."""
        resolved = self.recipe.model_dump(mode="json", by_alias=True)
        judged = [use.model_dump(mode="json", by_alias=True) for use in self.judged]
        write_sealed(self.store, RECIPE_FILE, {"base": self.base, "recipe": resolved, "judged": judged})

    def take_over(self, run_key: str) -> None:
        """Make the folder a run's: workers of an earlier one, alive somewhere, will commit nothing from here on."""
        write_sealed(self.store, RUN_FILE, {"run": run_key, "digests": {}})
        self.save_recipe()

    @classmethod
    def open(cls, root: str) -> Workspace:
        """Open an existing run's folder.

        Raises:
            UserError: if it holds no run.
            IncompleteError: if its recipe is damaged.
        """
        store = Store(root)
        if not store.exists(RECIPE_FILE):
            raise UserError(
                "no run is here",
                place=root,
                remedy=f"Name a folder that 'headrace run' wrote ({RECIPE_FILE} is missing)",
            )
        saved = read_sealed(store, RECIPE_FILE)
        judged = tuple(StageUse.model_validate(use) for use in saved.get("judged", ()))
        return cls(store, Recipe.model_validate(saved["recipe"]), saved["base"], judged)

    def input_path(self, path: str) -> str:
        """Return the path of an input that the recipe names: a URI as it is, else relative to the recipe's folder."""
        return resolved(self.base, path)


def resolved(base: str, path: str) -> str:
    """Return the path of an input: a URI as it is, else relative to ``base``."""
    return path if "://" in path else str(Path(base, path))


class SupersededError(UserError):
    """A driver or a worker outlived its run: it may not write to a folder that another recipe has taken over."""


def require_own(store: Store, run_key: str) -> None:
    """Check that a folder still belongs to a run.

    Raises:
        SupersededError: if it has become another run's: then what was read may be the other's.
    """
    if read_sealed(store, RUN_FILE)["run"] != run_key:
        raise SupersededError(
            "the folder now belongs to another run",
            place=store.root,
            remedy="Nothing more was written. One driver at a time may work in a folder",
        )


@functools.lru_cache(maxsize=8)
def _store(root: str) -> Store:
    return Store(root, repairs=True)


@dataclass(frozen=True)
class Job:
    """What a worker knows: the run's folder, whose run it is, and the pass that it works for. Small to pickle.

    Of other passes it knows nothing: what a unit may open comes with the unit.
    """

    root: str
    run_key: str
    pass_name: str
    digest: str

    @property
    def store(self) -> Store:
        """The folder's store, opened once per process."""
        return _store(self.root)

    def commit(
        self,
        unit: str,
        files: Mapping[str, FileEntry],
        statistics: Mapping[str, Any] | None = None,
        tables: Mapping[str, pa.Table] | None = None,
    ) -> None:
        """Write the marker of a unit, after all its files are published.

        Raises:
            SupersededError: if the folder has become another run's: then what was read may be the other's.
        """
        require_own(self.store, self.run_key)
        folder = PassFolder(self.store, self.pass_name, self.digest)
        folder.commit(Marker(unit, files, statistics or {}, tables or {}))
        meter.commit(self.store, self.pass_name, unit, self.digest)


def describe(recipe: Recipe) -> str:
    """Return the recipe's canonical JSON text."""
    return json.dumps(recipe.model_dump(mode="json", by_alias=True), sort_keys=True)
