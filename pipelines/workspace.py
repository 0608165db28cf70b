"""A run's folder: the resolved recipe, the source and split tables, and one folder per pass.

Everything a worker needs is opened by path from here, so what Beam ships is a folder's name and a few digests.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.recipe import Recipe
from shards.errors import IncompleteError, UserError
from shards.lock import LOCK_FILE
from shards.manifest import PassFolder
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
        if not store.exists(RECIPE_FILE) and any(not name.startswith((LOCK_FILE, SCRATCH)) for name in store.list(".")):
            raise UserError(
                "the output folder holds files that are not a run's",
                place=root,
                remedy="Name an empty folder, or the folder of an earlier run to go on with it",
            )
        return cls(store, recipe, os.path.abspath(base))

    def save_recipe(self) -> None:
        """Save the recipe."""
        resolved = self.recipe.model_dump(mode="json", by_alias=True)
        self.store.write_json(RECIPE_FILE, {"base": self.base, "recipe": resolved})

    def take_over(self, recipe_key: str) -> None:
        """Make the folder a run's: workers of an earlier one, alive somewhere, will commit nothing from here on."""
        self.store.write_json(RUN_FILE, {"run": recipe_key, "digests": {}})
        self.save_recipe()

    @classmethod
    def open(cls, root: str) -> Workspace:
        """Open an existing run's folder.

        Raises:
            UserError: if it holds no run.
        """
        store = Store(root)
        try:
            saved = store.read_json(RECIPE_FILE)
        except (IncompleteError, OSError) as error:
            raise UserError(
                "no run is here",
                place=root,
                remedy=f"Name a folder that 'headrace run' wrote ({RECIPE_FILE} is missing)",
            ) from error
        return cls(store, Recipe.model_validate(saved["recipe"]), saved["base"])

    def input_path(self, path: str) -> str:
        """Return the path of an input that the recipe names: a URI as it is, else relative to the recipe's folder."""
        return path if "://" in path else str(Path(self.base, path))


class SupersededError(RuntimeError):
    """A worker outlived its run: it may not commit to a folder that another recipe has taken over."""


@functools.lru_cache(maxsize=8)
def _opened(root: str, recipe_key: str) -> Workspace:
    return Workspace.open(root)


@dataclass(frozen=True)
class Run:
    """What a pass and its workers know: the folder, and the digest of each pass so far. Small to pickle."""

    root: str
    recipe_key: str
    digests: tuple[tuple[str, str], ...] = ()

    @property
    def workspace(self) -> Workspace:
        """The opened folder, once per process and recipe."""
        return _opened(self.root, self.recipe_key)

    @property
    def store(self) -> Store:
        """The folder's store."""
        return self.workspace.store

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        return self.workspace.recipe

    def folder(self, name: str) -> PassFolder:
        """Return the folder of a pass whose digest is known."""
        return PassFolder(self.store, name, dict(self.digests)[name])

    def with_digest(self, name: str, digest: str) -> Run:
        """Return the run with one more pass known."""
        return replace(self, digests=(*self.digests, (name, digest)))

    def note_progress(self) -> None:
        """Save the digests of the passes finished so far, so that a run can be looked into before its end."""
        self.store.write_json(RUN_FILE, {"run": self.recipe_key, "digests": dict(self.digests)})

    def commit(self, name: str, unit: str, files: Mapping[str, FileEntry], statistics: Mapping[str, Any]) -> None:
        """Write the marker of a pass's unit, after all its files are published.

        Raises:
            SupersededError: if the folder has become another run's: then what was read may be the other's.
        """
        if self.store.exists(RUN_FILE) and self.store.read_json(RUN_FILE)["run"] != self.recipe_key:
            raise SupersededError(f"the folder {self.root} belongs to another run by now; unit {unit} is given up")
        self.folder(name).commit(unit, files, statistics)

    def manifest(self, name: str) -> dict[str, Any]:
        """Return the manifest of a finished pass: checked file by file once per process, then remembered.

        Raises:
            IncompleteError: if the pass is not finished.
        """
        return _manifest(self.root, self.recipe_key, name, dict(self.digests)[name])


# Not by run: that grows by a digest with every pass, and each would check all files of those before it again.
@functools.lru_cache(maxsize=64)
def _manifest(root: str, recipe_key: str, name: str, digest: str) -> dict[str, Any]:
    return PassFolder(_opened(root, recipe_key).store, name, digest).manifest()


def describe(recipe: Recipe) -> str:
    """Return the recipe's canonical JSON text."""
    return json.dumps(recipe.model_dump(mode="json", by_alias=True), sort_keys=True)
