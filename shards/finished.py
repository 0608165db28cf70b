"""Whether a run's folder is finished: the driver's last word, and the bytes that it was said of.

A run that was changed and killed leaves shards of one recipe beside settings of another. So a trainer asks for
``digests.json``, which the driver removes first and writes last of all, and then whether the files that it is about to
read are those that the manifests of the passes name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shards.catalog import CATALOG_NAME
from shards.errors import IncompleteError
from shards.manifest import PassFolder
from shards.sealed import read_sealed
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
    digests = _digests(store)
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
        if listed != (path, hashlib.sha256(store.read_bytes(path)).hexdigest()):
            raise _changed(store, f"{path} is not what the run wrote: it was changed since, or is of another recipe")


def _digests(store: Store) -> dict[str, str]:
    digests = read_sealed(store, DIGESTS_FILE)
    if not all(isinstance(digest, str) for digest in digests.values()):
        raise _changed(store, f"{DIGESTS_FILE} is not as a run writes it")
    return digests


def _listed(store: Store, name: str, digests: Mapping[str, str], kind: str) -> tuple[str, str] | None:
    """Return path and sha256 of a file in a pass's manifest; None where there is no such pass or file."""
    if name not in digests:
        return None
    folder = PassFolder(store, name, digests[name])
    try:
        found = [marker.files[kind] for marker in folder.manifest().markers() if kind in marker.files]
    except IncompleteError as error:
        raise _changed(store, f"{folder.index_path} is missing, changed, or of another recipe ({error.what})") from None
    return (found[0].path, found[0].sha256) if found else None


def _changed(store: Store, what: str) -> IncompleteError:
    return IncompleteError(what, place=store.root, remedy="Run the recipe again; finished work is kept")
