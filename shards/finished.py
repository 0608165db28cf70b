"""Whether a run's folder is finished: the driver's last word, and the bytes that it was said of.

A run that was changed and killed leaves shards of one recipe beside settings of another. So a trainer asks for
``digests.json``, which the driver removes first and writes last of all, and then whether the files that it is about to
read are those that the manifests of the passes name.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from shards.catalog import CATALOG_NAME
from shards.errors import IncompleteError
from shards.store import Store

DIGESTS_FILE: Final = "digests.json"
SCHEDULE_FILE: Final = "schedule.json"
TRAINING_FILE: Final = "train.json"

CONTRACT: Final = (
    ("catalog", "catalog", f"shards/{CATALOG_NAME}"),
    ("schedule", "schedule", SCHEDULE_FILE),
    ("schedule", "training", TRAINING_FILE),
)
"""What a trainer reads: (pass that made it, kind of the file in the pass's manifest, path in the run's folder)."""


def require_finished(folder: Path) -> None:
    """Check that a run is finished, and that its schedule, settings and catalogue of shards are those it ended with.

    Raises:
        IncompleteError: if the run never finished, is being made anew, has no schedule, or a file was changed since.
    """
    store = Store(folder)
    if not store.exists(DIGESTS_FILE):
        raise IncompleteError(
            f"there is no {DIGESTS_FILE}, so the run is not finished: its files may be of different recipes",
            place=str(folder),
            remedy="Run the recipe again: headrace run RECIPE --out DIR; finished work is kept",
        )
    digests = _read(store, DIGESTS_FILE)
    for name, kind, path in CONTRACT:
        listed = _listed(store, name, digests, kind)
        if listed is None:
            raise IncompleteError(
                f"there is no {path}: the run has no schedule to train by",
                place=str(folder),
                remedy="Give the recipe [schedule] and [training], and run it again",
            )
        if not store.exists(path):
            raise _changed(store, f"there is no {path}, so there is nothing to train on")
        if listed != {"path": path, "sha256": hashlib.sha256(store.read_bytes(path)).hexdigest()}:
            raise _changed(store, f"{path} is not what the run wrote: it was changed since, or is of another recipe")


def _listed(store: Store, name: str, digests: Any, kind: str) -> dict[str, Any] | None:
    """Return path and sha256 of a file in a pass's manifest; None where the pass made no such file."""
    path = f"{name}/manifest.json"
    manifest = _read(store, path)
    try:
        if manifest["digest"] != digests[name]:
            raise _changed(store, f"{path} is of another recipe than {DIGESTS_FILE}")
        entries = [unit["files"][kind] for unit in manifest["units"] if kind in unit["files"]]
        return {key: entries[0][key] for key in ("path", "sha256")} if entries else None
    except (KeyError, TypeError) as error:
        raise _changed(store, f"{path} or {DIGESTS_FILE} is not as a run writes it ({error})") from None


def _read(store: Store, path: str) -> Any:
    if not store.exists(path):
        raise _changed(store, f"{path} is missing")
    try:
        return json.loads(store.read_bytes(path))
    except ValueError as error:
        raise _changed(store, f"{path} is not JSON: {error}") from None


def _changed(store: Store, what: str) -> IncompleteError:
    return IncompleteError(what, place=store.root, remedy="Run the recipe again; finished work is kept")
