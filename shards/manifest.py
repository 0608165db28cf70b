"""Manifests: what of a pass is finished, and with which bytes.

A pass consists of units (a split, a hash range, a shard group). A unit publishes its files and then its *marker*, so a
restart skips what is marked, and a unit killed half-way counts for nothing. When all units are marked, the *manifest*
folds the markers in unit order: Arrow tables in parts, each kept twice, under names that hold their content's hash. It
holds no clock, host or worker, so equal work gives equal bytes. The markers are deleted then.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa

from shards.errors import IncompleteError
from shards.marker import Marker, from_bytes, markers_in, small_table, to_bytes
from shards.sealed import canonical, digest_of, read_sealed, write_sealed
from shards.store import UNFINISHED, FileEntry, Store

__all__ = ["Manifest", "Marker", "PassFolder", "Survey", "digest_of"]

MANIFEST_FORMAT: Final = 2
UNITS_PER_PART: Final = 512
_PART_BYTES: Final = 16 << 20
_ROW_BYTES: Final = 128
"""About what a file, or a row of a small table, takes in a part."""
_COPIES: Final = ("manifest", "manifest/copy")
"""Folders of the parts and of their copies: a bit that flips in one of them makes no unit to be done again."""
_SEPARATOR: Final = "."


class Manifest:
    """The units of a finished pass in order, read part by part."""

    def __init__(self, store: Store, name: str, parts: Sequence[FileEntry]) -> None:
        self.name, self.parts = name, tuple(parts)
        self._store = store

    def tables(self) -> Iterator[pa.Table]:
        """Yield the parts, tables of markers.

        Raises:
            IncompleteError: if a part and its copy are missing or damaged.
        """
        for part in self.parts:
            yield from_bytes(self._store.read_named(part.path, _copy_of(part.path)))

    def markers(self) -> Iterator[Marker]:
        """Yield the units' markers, without their small tables."""
        for table in self.tables():
            yield from markers_in(table)

    @functools.cached_property
    def units(self) -> tuple[str, ...]:
        """The units, in order."""
        return tuple(unit for table in self.tables() for unit in table.column("unit").to_pylist())

    @functools.cached_property
    def by_unit(self) -> Mapping[str, Marker]:
        """The markers by unit, in order."""
        return {marker.unit: marker for marker in self.markers()}

    def table(self, name: str) -> pa.Table:
        """Return one small table of all units, with the column ``unit``."""
        parts = [small_table(table, name) for table in self.tables()]
        return pa.concat_tables(parts) if parts else pa.table({"unit": pa.array([], pa.string())})

    def digest(self, kind: str) -> str:
        """Return the digest of all that the units hold of a kind: a file's content, a statistic, or a small table."""
        digest = hashlib.sha256()
        for table in self.tables():
            if kind in table.schema.names:
                # The rows without the brackets around them: how units are cut into parts must not matter.
                if rows := canonical(small_table(table, kind).to_pylist())[1:-1]:
                    digest.update(f"{rows},".encode())
                continue
            for marker in markers_in(table):
                held = marker.files[kind].sha256 if kind in marker.files else marker.statistics[kind]
                digest.update(digest_of([marker.unit, held]).encode())
        return digest.hexdigest()


def _copy_of(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder.removesuffix('manifest')}{_COPIES[1]}/{name}"


@dataclass(frozen=True)
class Survey:
    """What one listing of a pass's folder shows.

    Attributes:
        rows: where the marker is, as (table, row), of every unit whose files are all there in full size, by unit.
        finished: the units of a manifest that is there as it was written, in order; None without one.
        listed: every file in the pass's folders.
        index: the files of the manifest, its copies included.
    """

    rows: Mapping[str, tuple[pa.Table, int]]
    finished: tuple[str, ...] | None
    listed: frozenset[str] = frozenset()
    index: frozenset[str] = frozenset()

    def row(self, unit: str) -> pa.Table:
        """Return the marker of a finished unit, a table of one row."""
        table, at = self.rows[unit]
        return table.slice(at, 1)

    def is_finished(self, units: Sequence[str]) -> bool:
        """Return whether the manifest is of exactly these units, and all their files are there."""
        return self.finished == tuple(units) and not self.pending(units)

    def pending(self, units: Iterable[str]) -> list[str]:
        """Return those units that are not finished, in order."""
        return [unit for unit in units if unit not in self.rows]


class PassFolder:
    """One pass's folder in the store: files by kind, markers while it is being made, and then the manifest.

    Args:
        store: the run's store.
        name: the pass's name, and its folder's.
        digest: what the pass's bytes depend on; another digest's markers and manifest count for nothing.
        also: further folders in which its units publish files.
        foreign: files in those folders that are another pass's, and folders in them, each with a slash at its end.
    """

    def __init__(
        self, store: Store, name: str, digest: str, also: Sequence[str] = (), foreign: Sequence[str] = ()
    ) -> None:
        self.store, self.name, self.digest = store, name, digest
        self._also, self._foreign = tuple(also), tuple(foreign)
        self._tag = digest[:8]

    @property
    def index_path(self) -> str:
        """The path of the manifest's index, which names its parts."""
        return f"{self.name}/manifest.json"

    def commit(self, marker: Marker) -> None:
        """Write a unit's marker, after all its files are published."""
        data, stem = to_bytes(marker.to_table()), f"{marker.unit}{_SEPARATOR}{self._tag}"
        self.store.publish_bytes(data, _markers_of(self.name), stem, ".arrow", 1)

    def marked(self) -> set[str]:
        """Return the units that have a marker, whatever it holds: by one listing, for progress."""
        return {unit for path in self.store.list(_markers_of(self.name)) if (unit := self._unit_of(path))}

    def _unit_of(self, path: str) -> str | None:
        unit, _, tag = PurePosixPath(path).stem.rpartition("-")[0].rpartition(_SEPARATOR)
        return unit if tag == self._tag else None

    def survey(self) -> Survey:
        """Look the pass over, by one listing and a look into its manifest and into markers not folded yet."""
        sizes = self._sizes()
        index = self._index()
        rows: dict[str, tuple[pa.Table, int]] = {}
        tables: dict[str, pa.Table] = {}
        for folder in (f"{self.name}/manifest", _markers_of(self.name)):
            for path in [path for path in sizes if path.startswith(f"{folder}/") and self._unit_of(path)]:
                if (table := self._read(path)) is None:
                    del sizes[path]
                else:
                    tables[path] = table
                    rows |= self._whole(table, sizes)
        named = {path for part in index or () for path in (part.path, _copy_of(part.path))}
        if index is None or not named <= sizes.keys():
            return Survey(rows, None, frozenset(sizes))
        units = tuple(unit for part in index for unit in tables[part.path].column("unit").to_pylist())
        return Survey(rows, units, frozenset(sizes), frozenset({self.index_path, *named}))

    def _sizes(self) -> dict[str, int]:
        sizes = self.store.sizes(self.name)
        for folder in (*self._also, _markers_of(self.name)):
            sizes |= self.store.sizes(folder)
        return sizes

    def _index(self) -> list[FileEntry] | None:
        """Return the parts that the index names; None unless it is of this digest."""
        try:
            index = read_sealed(self.store, self.index_path) if self.store.exists(self.index_path) else None
        except IncompleteError:
            return None
        if index is None or (index["format"], index["digest"]) != (MANIFEST_FORMAT, self.digest):
            return None
        return [FileEntry(**part) for part in index["parts"]]

    def _read(self, path: str) -> pa.Table | None:
        try:
            return from_bytes(self.store.read_named(path))
        except IncompleteError:
            return None

    def _whole(self, table: pa.Table, sizes: Mapping[str, int]) -> dict[str, tuple[pa.Table, int]]:
        """Return where the marker is, by unit, of the units whose files are all present."""
        whole = {}
        for at, marker in enumerate(markers_in(table)):
            if all(self._is_there(entry, sizes) for entry in marker.files.values()):
                whole[marker.unit] = (table, at)
        return whole

    def _is_there(self, entry: FileEntry, sizes: Mapping[str, int]) -> bool:
        if entry.is_named_by_content:
            # Its name vouches for the content, which is compared when it is opened.
            return sizes.get(entry.path) == entry.size
        # A fixed name may have been written over for another recipe.
        if self.store.size(entry.path) != entry.size:
            return False
        return hashlib.sha256(self.store.read_bytes(entry.path)).hexdigest() == entry.sha256

    def finish(self, units: Sequence[str], look: Callable[[Iterator[pa.Table]], None] | None = None) -> None:
        """Fold the markers into the manifest, and delete all files of the pass that it does not name.

        Args:
            units: all units, in order.
            look: is given the parts, tables of markers, before the manifest is there.

        Raises:
            IncompleteError: if a unit is not finished.
        """
        survey = self.survey()
        rows = survey.rows
        if missing := [unit for unit in units if unit not in rows]:
            raise IncompleteError(
                f"unit {missing[0]} of pass {self.name} is not finished",
                place=self.store.root,
                remedy="Run the recipe again; finished work is kept",
            )
        if look is not None:
            look(_parts(survey.row(unit) for unit in units))
        found = _parts(survey.row(unit) for unit in units)
        parts = [self._write_part(number, table) for number, table in enumerate(found)]
        index = {
            "format": MANIFEST_FORMAT,
            "pass": self.name,
            "digest": self.digest,
            "units": len(units),
            "parts": [vars(part) for part in parts],
        }
        write_sealed(self.store, self.index_path, index)
        written = {self.index_path, *(path for part in parts for path in (part.path, _copy_of(part.path)))}
        self.store.delete_folder(f"{UNFINISHED}/{self.name}")
        self._sweep(rows, units, written, frozenset(self._sizes()))

    def sweep(self, survey: Survey, units: Sequence[str]) -> None:
        """Delete the files of a finished pass that its manifest does not name: another recipe was begun and given up.

        Args:
            survey: of the pass, finished with these units.
            units: its units.
        """
        self._sweep(survey.rows, units, survey.index, survey.listed)

    def _sweep(
        self,
        rows: Mapping[str, tuple[pa.Table, int]],
        units: Sequence[str],
        written: Collection[str],
        listed: Collection[str],
    ) -> None:
        wanted = {*written, *self._foreign}
        folders = tuple(path for path in self._foreign if path.endswith("/"))
        for unit in units:
            table, at = rows[unit]
            wanted |= {file["path"] for file in table.column("files")[at].as_py()}
        for path in sorted(set(listed) - wanted):
            if not path.startswith(folders):
                self.store.delete(path)

    def _write_part(self, number: int, table: pa.Table) -> FileEntry:
        data, stem = to_bytes(table), f"{number:05d}{_SEPARATOR}{self._tag}"
        entries = [
            self.store.publish_bytes(data, f"{self.name}/{folder}", stem, ".arrow", table.num_rows)
            for folder in _COPIES
        ]
        return entries[0]

    def manifest(self) -> Manifest:
        """Return the manifest.

        Raises:
            IncompleteError: if the pass is not finished with this digest.
        """
        if (parts := self._index()) is None:
            raise IncompleteError(
                f"pass {self.name} is not finished",
                place=self.store.root,
                remedy="Run the recipe again; finished work is kept",
            )
        return Manifest(self.store, self.name, parts)


def _markers_of(name: str) -> str:
    return f"{UNFINISHED}/{name}/markers"


def unfolded_markers(store: Store, name: str) -> Iterator[pa.Table]:
    """Yield the markers of a pass that was not finished, of whatever digest, each a table of one row."""
    for path in store.list(_markers_of(name)):
        # One that is damaged is of no unit; its unit is made again.
        with contextlib.suppress(IncompleteError):
            yield from_bytes(store.read_named(path))


def _parts(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield consecutive rows as tables of at most ``UNITS_PER_PART`` units and about 16 MB."""
    part: list[pa.Table] = []
    size = 0
    for row in rows:
        weight = _weight(row)
        if len(part) == UNITS_PER_PART or (part and size + weight > _PART_BYTES):
            yield pa.concat_tables(part)
            part, size = [], 0
        part.append(row)
        size += weight
    if part:
        yield pa.concat_tables(part)


def _weight(row: pa.Table) -> int:
    """Return about how many bytes a row takes, from its values alone.

    Its buffers' bytes also depend on where it was cut from: a repaired manifest would have other parts.
    """
    lists = (row.column(name)[0] for name in row.column_names if name not in ("unit", "statistics"))
    return len(row.column("statistics")[0].as_py()) + _ROW_BYTES * sum(map(len, lists))
