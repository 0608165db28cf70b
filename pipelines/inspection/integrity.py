"""Comparing every file that a run's manifests name with what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipelines.run import Run
from shards.errors import IncompleteError
from shards.store import FileEntry, Store


@dataclass(frozen=True)
class Damage:
    """A file that is missing or not what was written, and the unit that made it."""

    made_by: str
    unit: str
    path: str
    what: str


def entries(run: Run) -> Iterator[tuple[str, str, FileEntry]]:
    """Yield (pass, unit, file) of every file that the finished passes name.

    Raises:
        IncompleteError: if a manifest and its copy are missing or damaged.
    """
    for name in run.digests:
        for marker in run.manifest(name).markers():
            for entry in marker.files.values():
                yield name, marker.unit, entry


def verify(run: Run, seen: Callable[[int], None]) -> list[Damage]:
    """Read every file of a run and return those that are not as they were written.

    They are deleted, so that the same recipe, run again, makes those units anew and nothing else.

    Args:
        run: a finished run, or one that has all verdicts.
        seen: called with the bytes of each file that was read.
    """
    found = []
    for name, unit, entry in entries(run):
        if (what := _compare(run.store, entry)) is not None:
            found.append(Damage(name, unit, entry.path, what))
        seen(entry.size)
    return found


def _compare(store: Store, entry: FileEntry) -> str | None:
    try:
        store.open_checked(entry).close()
    except IncompleteError as error:
        return error.what
    return None
