"""Markers and manifests: what of a pass is finished, and with which bytes.

A pass consists of units (a split, a hash range, a shard group). A unit publishes its files and then its *marker*, so a
restart skips what is marked and a unit killed half-way counts for nothing. When all units are marked, the *manifest*
folds the markers in unit order; it holds no clock, host or worker, so equal work gives equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from shards.errors import IncompleteError
from shards.store import FileEntry, Store

MANIFEST_FORMAT: Final = 1


def digest_of(value: Any) -> str:
    """Return the sha256, in hex, of a JSON-able value in canonical form: keys sorted, no blanks."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True)
class Marker:
    """A finished unit: the digest of the pass it belongs to, its files by kind, and its statistics (JSON-able)."""

    unit: str
    digest: str
    files: Mapping[str, FileEntry]
    statistics: Mapping[str, Any]


class PassFolder:
    """One pass's folder in the store: files by kind, ``markers/{unit}.json``, ``manifest.json``."""

    def __init__(self, store: Store, name: str, digest: str) -> None:
        self.store, self.name, self.digest = store, name, digest

    def _marker_path(self, unit: str) -> str:
        return f"{self.name}/markers/{unit}.json"

    def commit(self, unit: str, files: Mapping[str, FileEntry], statistics: Mapping[str, Any]) -> None:
        """Write a unit's marker, after all its files are published."""
        value = {
            "unit": unit,
            "digest": self.digest,
            "files": {kind: asdict(entry) for kind, entry in sorted(files.items())},
            "statistics": statistics,
        }
        self.store.write_json(self._marker_path(unit), value)

    def marker(self, unit: str) -> Marker | None:
        """Return a unit's marker; None unless it is of this digest and every file it names is there in full size."""
        path = self._marker_path(unit)
        if not self.store.exists(path):
            return None
        try:
            value = self.store.read_json(path)
        except IncompleteError:
            # Torn by a store without atomic writes: the unit is done again, and its marker with it.
            return None
        if value["digest"] != self.digest:
            return None
        files = {kind: FileEntry(**entry) for kind, entry in value["files"].items()}
        if not all(self._is_there(entry) for entry in files.values()):
            return None
        return Marker(unit, self.digest, files, value["statistics"])

    def marked(self) -> set[str]:
        """Return the units that have a marker file, whatever it holds: by one listing, for progress."""
        names = self.store.list(f"{self.name}/markers")
        return {name.rpartition("/")[2].removesuffix(".json") for name in names}

    def require(self, unit: str) -> Marker:
        """Return a unit's marker.

        Raises:
            IncompleteError: if the unit is not finished.
        """
        if (found := self.marker(unit)) is None:
            raise IncompleteError(
                f"unit {unit} of pass {self.name} is not finished",
                place=self.store.root,
                remedy="Run the recipe again; finished work is kept",
            )
        return found

    def pending(self, units: Iterable[str]) -> list[str]:
        """Return those units that have no valid marker, in order."""
        return [unit for unit in units if self.marker(unit) is None]

    def is_finished(self, units: Sequence[str] | None = None) -> bool:
        """Return whether the manifest is there with this digest, and every unit's marker with all its files.

        Markers count as well as the manifest, because readers ask them: another recipe that began to work in this
        folder has overwritten some. With ``units``, the manifest must be of exactly these: a digest does not change
        when inputs are added or removed.
        """
        path = f"{self.name}/manifest.json"
        if not self.store.exists(path):
            return False
        try:
            manifest = self.store.read_json(path)
        except IncompleteError:
            return False
        if manifest.get("digest") != self.digest:
            return False
        names = [unit["unit"] for unit in manifest["units"]]
        return (units is None or names == list(units)) and not self.pending(names)

    def _is_there(self, entry: FileEntry) -> bool:
        if self.store.size(entry.path) != entry.size:
            return False
        # A name that holds the hash vouches for the content; one that is fixed may have been written for another unit.
        return (
            entry.is_named_by_content or hashlib.sha256(self.store.read_bytes(entry.path)).hexdigest() == entry.sha256
        )

    def finish(self, units: Sequence[str], statistics: Mapping[str, Any] | None = None) -> None:
        """Fold the markers into the manifest, and remove files of the pass that no marker names.

        Raises:
            IncompleteError: if a unit is not finished.
        """
        markers = [self.require(unit) for unit in units]
        value = {
            "format": MANIFEST_FORMAT,
            "pass": self.name,
            "digest": self.digest,
            "statistics": dict(statistics or {}),
            "units": [
                {"unit": m.unit, "files": {k: asdict(f) for k, f in m.files.items()}, "statistics": m.statistics}
                for m in markers
            ],
        }
        self.store.write_json(f"{self.name}/manifest.json", value)
        wanted = {f.path for m in markers for f in m.files.values()}
        wanted |= {self._marker_path(unit) for unit in units} | {f"{self.name}/manifest.json"}
        for path in self.store.list(self.name):
            if path not in wanted:
                self.store.delete(path)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest's value.

        Raises:
            IncompleteError: if the pass is not finished with this digest.
        """
        if not self.is_finished():
            raise IncompleteError(
                f"pass {self.name} is not finished", place=self.store.root, remedy="Run the recipe again"
            )
        value: dict[str, Any] = self.store.read_json(f"{self.name}/manifest.json")
        return value
