"""A run as the driver and its readers see it: the folder, its recipe and plan, and the passes that are finished."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pipelines.plan import Plan, load_plan
from pipelines.planning.labels import LabelRules, Labels
from pipelines.recipe import Recipe
from pipelines.workspace import RUN_FILE, Job, Workspace, require_own
from shards.manifest import Manifest, PassFolder
from shards.sealed import write_sealed
from shards.store import FileEntry, Store


class Run:
    """A run's folder, and the digests of the passes finished so far."""

    def __init__(self, workspace: Workspace, key: str, digests: Mapping[str, str] | None = None) -> None:
        self.workspace, self.key = workspace, key
        self.digests = dict(digests or {})
        self._manifests: dict[str, Manifest] = {}

    @property
    def store(self) -> Store:
        """The folder's store."""
        return self.workspace.store

    @property
    def root(self) -> str:
        """The folder, a path or a URI."""
        return self.store.root

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        return self.workspace.recipe

    def add(self, name: str, digest: str) -> None:
        """Make the digest of one more pass known, now that it is finished."""
        self.digests[name] = digest

    def job(self, name: str, digest: str) -> Job:
        """Return what the workers of a pass need to know."""
        return Job(self.root, self.key, name, digest)

    def note_progress(self) -> None:
        """Save the digests of the passes finished so far, so that a run can be looked into before its end.

        Raises:
            SupersededError: if the folder has become another run's.
        """
        self.require_own()
        write_sealed(self.store, RUN_FILE, {"run": self.key, "digests": self.digests})

    def require_own(self) -> None:
        """Check that the folder still belongs to this run.

        Raises:
            SupersededError: if it has become another's.
        """
        require_own(self.store, self.key)

    def has(self, name: str) -> bool:
        """Return whether a pass is part of this run, and finished."""
        return name in self.digests

    def manifest(self, name: str) -> Manifest:
        """Return the manifest of a finished pass, opened once.

        Raises:
            IncompleteError: if the pass is not finished.
        """
        if name not in self._manifests:
            digest = self.digests.get(name, "")
            self._manifests[name] = PassFolder(self.store, name, digest).manifest()
        return self._manifests[name]

    @functools.cached_property
    def plan(self) -> Plan:
        """The run's splits."""
        return load_plan(self.store)

    @functools.cached_property
    def labels(self) -> Labels:
        """Domain, licence and priority of the run's sources."""
        return Labels.of_plan(LabelRules.of(self.recipe), self.plan)

    def splits_of(self, doc_ids: npt.NDArray[np.int64]) -> list[str]:
        """Return the splits that documents come from, in order."""
        found = (self.plan.split_of(source) for source in np.unique(doc_ids >> 32).tolist())
        return list(dict.fromkeys(split for split in found if split is not None))

    def files(self, name: str, kind: str) -> dict[str, FileEntry]:
        """Return one kind of file of a finished pass by unit, in order."""
        return {marker.unit: marker.files[kind] for marker in self.manifest(name).by_unit.values()}
