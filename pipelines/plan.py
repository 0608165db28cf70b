"""Planning: which files there are, and how they are cut into splits. Nothing of their content is judged here.

The source table is append-only: a file keeps its index for the life of a run's folder, so doc_ids stay true when files
are added. A split is named by its position and the digest of its sources, so files added later leave finished splits
alone.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from pipelines.recipe import SourceSettings
from pipelines.workspace import Run, Workspace
from shards.errors import UserError
from shards.manifest import digest_of
from shards.store import Store, file_system, open_input

PLAN_FILE = "plan/plan.json"
_PROBE_BYTES = 64 << 10


@dataclass(frozen=True)
class PlannedSource:
    """One input file: its index, path as the recipe's folder sees it, size in bytes, checksum, and its settings."""

    index: int
    path: str
    size: int
    checksum: str
    settings: int
    """Position of its ``[[sources]]`` table in the recipe."""


@dataclass(frozen=True)
class Split:
    """A unit of reading: consecutive sources of about ``split_bytes``."""

    name: str
    sources: tuple[PlannedSource, ...]

    @property
    def size(self) -> int:
        """Bytes of input."""
        return sum(source.size for source in self.sources)


@dataclass(frozen=True)
class Plan:
    """The split table of a run, in order, and the sources it was made from."""

    splits: tuple[Split, ...]

    @property
    def size(self) -> int:
        """Bytes of input."""
        return sum(split.size for split in self.splits)

    @functools.cached_property
    def by_name(self) -> dict[str, Split]:
        """The splits by name."""
        return {split.name: split for split in self.splits}


def make_plan(workspace: Workspace, known: Sequence[PlannedSource] = ()) -> Plan:
    """Find the recipe's files and cut them into splits.

    Raises:
        UserError: if a glob matches nothing, or a file that an earlier run of this folder read has changed.
    """
    indices = {source.path: source for source in known}
    fresh: list[tuple[str, int, int]] = []
    active: list[PlannedSource] = []
    for path, size, settings in _found(workspace):
        before = indices.get(path)
        if before is None:
            fresh.append((path, size, settings))
            continue
        if before.size != size or before.checksum != probe_checksum(workspace.input_path(path), size):
            raise UserError(
                f"the source {path!r} has changed since this folder first read it",
                place=workspace.store.root,
                remedy="Its documents would lose their origin: use a new --out folder, or a new file name",
            )
        active.append(PlannedSource(before.index, path, size, before.checksum, settings))
    following = 1 + max((source.index for source in known), default=-1)
    for index, (path, size, settings) in enumerate(fresh, start=following):
        active.append(PlannedSource(index, path, size, probe_checksum(workspace.input_path(path), size), settings))
    return Plan(tuple(_cut(workspace, sorted(active, key=lambda source: source.index))))


def _found(workspace: Workspace) -> Iterator[tuple[str, int, int]]:
    """Yield (path, size, settings position), sorted by path; a file belongs to the first table whose glob matches."""
    found: dict[str, tuple[str, int, int]] = {}
    for position, settings in enumerate(workspace.recipe.sources):
        for pattern in settings.globs:
            matches = _expand(workspace, pattern)
            if not matches:
                raise UserError(
                    f"the glob {pattern!r} matches no file",
                    place=f"recipe, key sources.{position}.glob, looked in {workspace.base}",
                    remedy="Mend the pattern; it is relative to the recipe's folder",
                )
            for path, size in matches:
                # One file under two names, such as an absolute one, is read once.
                place = path if "://" in path else os.path.normpath(workspace.input_path(path))
                found.setdefault(place, (path, size, position))
    for path, size, position in sorted(found.values()):
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
            raise UserError(
                f"the name {path!r} is not UTF-8, or holds control characters",
                place=f"recipe, key sources.{position}.glob",
                remedy="Rename the file: tables, traces and reports name it",
            )
        yield path, size, position


def _expand(workspace: Workspace, pattern: str) -> list[tuple[str, int]]:
    if "://" not in pattern:
        names = glob.glob(pattern, root_dir=workspace.base, recursive=True)
        paths = [(name, os.path.join(workspace.base, name)) for name in names]
        return [(name.replace(os.sep, "/"), os.path.getsize(path)) for name, path in paths if os.path.isfile(path)]
    # Only the folder before the first wildcard is a URI: a bracket or question mark would mean something else in one.
    where = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    fs, folder = file_system(where)
    wanted = pattern[len(where) + 1 :].split("/")
    selector = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
    files = (info for info in fs.get_file_info(selector) if info.type == pafs.FileType.File)
    # Some fsspec handlers give paths with a leading slash, however they were asked.
    found = ((PurePosixPath(info.path.strip("/")).relative_to(folder.strip("/")), info.size) for info in files)
    return [(f"{where}/{path}", size) for path, size in found if _matches(path.parts, wanted)]


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a path matches a glob, part by part: ``*`` stays inside a folder, ``**`` is any number of them."""
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return _matches(parts, wanted[1:]) or (bool(parts) and _matches(parts[1:], wanted))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


def probe_checksum(path: str, size: int) -> str:
    """Return sha256 over the size and the first, middle and last 64 KiB: enough to notice a file that was replaced."""
    digest = hashlib.sha256(str(size).encode())
    with open_input(path) as file:
        for start in sorted({0, max(0, size // 2 - _PROBE_BYTES // 2), max(0, size - _PROBE_BYTES)}):
            file.seek(start)
            digest.update(file.read(_PROBE_BYTES))
    return digest.hexdigest()[:32]


def _cut(workspace: Workspace, sources: Sequence[PlannedSource]) -> Iterator[Split]:
    group: list[PlannedSource] = []
    count = size = 0
    for source in sources:
        if group and size + source.size > workspace.recipe.split_bytes:
            yield _split(count, group, workspace.recipe.sources)
            count, size, group = count + 1, 0, []
        group.append(source)
        size += source.size
    if group:
        yield _split(count, group, workspace.recipe.sources)


def _split(position: int, sources: Sequence[PlannedSource], settings: Sequence[SourceSettings]) -> Split:
    # The file's name without its folder: where a corpus lies is no part of what is made from it.
    content = [
        [
            s.index,
            s.path.rpartition("/")[2],
            s.size,
            s.checksum,
            settings[s.settings].model_dump(exclude={"glob"}),
        ]
        for s in sources
    ]
    return Split(f"{position:05d}-{digest_of(content)[:8]}", tuple(sources))


def save_plan(store: Store, plan: Plan, known: Sequence[PlannedSource]) -> None:
    """Save the plan, with every source ever known to this folder."""
    sources = {source.index: source for source in known}
    sources |= {source.index: source for split in plan.splits for source in split.sources}
    value: dict[str, Any] = {
        "sources": [asdict(sources[index]) for index in sorted(sources)],
        "splits": [{"name": split.name, "sources": [s.index for s in split.sources]} for split in plan.splits],
    }
    store.write_json(PLAN_FILE, value)


def load_sources(store: Store) -> list[PlannedSource]:
    """Return every source known to a run's folder, by index; none in a new folder."""
    if not store.exists(PLAN_FILE):
        return []
    return [PlannedSource(**source) for source in store.read_json(PLAN_FILE)["sources"]]


def load_plan(store: Store) -> Plan:
    """Return a run's plan."""
    value = store.read_json(PLAN_FILE)
    sources = {source["index"]: PlannedSource(**source) for source in value["sources"]}
    return Plan(tuple(Split(s["name"], tuple(sources[i] for i in s["sources"])) for s in value["splits"]))


def plan_of(run: Run) -> Plan:
    """Return a run's plan, loaded once per process."""
    return _plan(run.root, run.recipe_key)


@functools.lru_cache(maxsize=1)
def _plan(root: str, recipe_key: str) -> Plan:
    return load_plan(Run(root, recipe_key).store)
