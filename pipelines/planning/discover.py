"""Which files a recipe names: by globs and by lists, each file once, with the names that lead nowhere."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.planning import globs, lists
from pipelines.planning.links import LocalFiles, Look
from pipelines.planning.places import is_unshowable, is_uri, key_of, spelled
from pipelines.planning.probe import Glance, spread
from pipelines.recipe import Recipe
from shards.errors import UserError

MISSING, UNNAMED, DANGLING, SPECIAL, SAME_FILE = "missing", "unnamed", "dangling", "special", "same_file"

LEFT_OUT: Final = pa.schema(
    [pa.field("path", pa.string(), nullable=False), pa.field("why", pa.string(), nullable=False)]
)
"""Names that are not read, and why, in one of the words above."""

_LIST_CHUNK: Final = 8_192
_WHY_NOT: Final = {
    MISSING: "is not there",
    DANGLING: "is a link that leads nowhere",
    "folder": "is a folder",
    SPECIAL: "is not a regular file",
}


@dataclass(frozen=True)
class Finds:
    """The files that a recipe names, sorted by path, in columns.

    Attributes:
        paths: in the spelling of the plan.
        settings: position of each file's ``[[sources]]`` table, int32.
        glances: the values of ``Glance`` of each, int64 of shape (files, 4).
        left_out: names that are not read, and why.
    """

    paths: list[str]
    settings: npt.NDArray[np.int32]
    glances: npt.NDArray[np.int64]
    left_out: dict[str, str]

    def keys(self, base: str) -> pa.Array:
        """Return ``key_of`` every path."""
        return pa.array([key_of(path, base) for path in self.paths], pa.string())


def discover(recipe: Recipe, base: str, known: pa.Array, own: str = "") -> Finds:
    """Find the files that a recipe names.

    A file belongs to the first ``[[sources]]`` table that names it. Of several names of one file those are kept that
    the folder knows, else one of the first table, rather one without a link in it, the first of them.

    Args:
        recipe: its sources.
        base: the folder that its paths are relative to, absolute.
        known: keys of the files that the run's folder knows.
        own: the run's folder: a glob such as ``**/*`` does not mean what the run itself has written.

    Raises:
        UserError: if a glob matches nothing, a list names nothing or what is not there, or a name can be shown in no
            table.
    """
    finder = _Finder(recipe, base, own)
    for position, settings in enumerate(recipe.sources):
        for pattern in settings.globs:
            finder.take_glob(position, pattern)
        for name in settings.lists:
            finder.take_list(position, name)
    return finder.finish(known)


class _Name(NamedTuple):
    settings: int
    through_link: bool
    path: str


class _Finder:
    def __init__(self, recipe: Recipe, base: str, own: str) -> None:
        self._recipe, self._base = recipe, base
        self._local = LocalFiles(base)
        self._own = f"{key_of(own if is_uri(own) else os.path.realpath(own), os.path.realpath(base))}/" if own else ""
        self._paths: list[str] = []
        self._settings, self._through_link, self._glances = array("i"), bytearray(), array("q")
        # By the place of the file itself; names beyond its first are few.
        self._at: dict[str, int] = {}
        self._more: dict[int, list[_Name]] = {}
        self._left_out: dict[str, str] = {}

    def take_glob(self, position: int, pattern: str) -> None:
        place = f"recipe, key sources.{position}.glob"
        links, found = len(self._left_out), 0
        if (local := globs.as_local(pattern)) is None:
            for path, glance in sorted(globs.remote_files(pattern)):
                key = key_of(path, self._base)
                if not self._is_own(key):
                    self._add(_Name(position, False, path), key, glance, place)
                    found += 1
        else:
            for path, look in self._looked_at(sorted(set(globs.local_names(local, self._base)))):
                if look.problem in (DANGLING, SPECIAL):
                    self._left_out[path] = look.problem
                elif not look.problem and not self._is_own(look.real):
                    self._add(_Name(position, look.through_link, path), look.real, look.glance, place)
                    found += 1
        if found:
            return
        if not self._recipe.leave_out_missing:
            dangling = len(self._left_out) - links
            raise UserError(
                f"the glob {pattern!r} matches no file"
                + (f", only {dangling} that cannot be read" if dangling else ""),
                place=f"{place}, looked in {self._base}",
                remedy="Fix the pattern; it is relative to the recipe's folder",
            )
        self._left_out[pattern] = MISSING

    def _is_own(self, real: str) -> bool:
        return bool(self._own) and real.startswith(self._own)

    def take_list(self, position: int, name: str) -> None:
        lines: list[tuple[int, str]] = []
        list_path = spelled(name if is_uri(name) else os.path.join(self._base, name))
        empty = True
        for line in lists.listed(list_path, name):
            empty = False
            lines.append(line)
            if len(lines) == _LIST_CHUNK:
                self._take_lines(position, name, lines)
                lines = []
        self._take_lines(position, name, lines)
        if empty:
            raise UserError(
                f"the list {name!r} names no file",
                place=f"recipe, key sources.{position}.list, looked in {self._base}",
                remedy="Write one path or URI a line into it",
            )

    def _take_lines(self, position: int, list_name: str, lines: Sequence[tuple[int, str]]) -> None:
        paths = [spelled(path) for _, path in lines]
        looks = self._looked_at_any(paths)
        for (number, _), (path, look) in zip(lines, looks, strict=True):
            place = f"{list_name}, line {number}"
            if not look.problem:
                self._add(_Name(position, look.through_link, path), look.real, look.glance, place)
            elif look.problem in (MISSING, DANGLING) and self._recipe.leave_out_missing:
                self._left_out[path] = look.problem
            else:
                raise UserError(
                    f"the listed file {path!r} {_WHY_NOT[look.problem]}",
                    place=f"{place}, looked in {self._base}",
                    remedy="Fix the list, or set leave_out_missing = true to go on without what is missing",
                )

    def _looked_at_any(self, paths: Sequence[str]) -> Iterator[tuple[str, Look]]:
        uris = [path for path in paths if is_uri(path)]
        remote = iter([glance for part in spread(globs.remote_glances, uris) for glance in part])
        local = self._looked_at([path for path in paths if not is_uri(path)])
        for path in paths:
            if not is_uri(path):
                yield next(local)
            elif (glance := next(remote)) is None:
                yield path, Look("", Glance(0), False, MISSING)
            else:
                yield path, Look(key_of(path, self._base), glance, False, "")

    def _looked_at(self, paths: Sequence[str]) -> Iterator[tuple[str, Look]]:
        looks = (look for part in spread(self._local.look, paths) for look in part)
        return zip(paths, looks, strict=True)

    def _add(self, name: _Name, real: str, glance: Glance, place: str) -> None:
        if is_unshowable(name.path):
            raise UserError(
                f"the name {name.path!r} is not UTF-8, or holds control characters",
                place=place,
                remedy="Rename the file: tables, traces and reports name it",
            )
        at = self._at.setdefault(real, len(self._paths))
        if at < len(self._paths):
            # Several globs may match one name.
            if name.path != self._paths[at]:
                self._more.setdefault(at, []).append(name)
            return
        self._paths.append(name.path)
        self._settings.append(name.settings)
        self._through_link.append(name.through_link)
        self._glances.extend(glance)

    def finish(self, known: pa.Array) -> Finds:
        self._at.clear()
        self._choose_names(known)
        settings = np.array(self._settings, np.int32)
        glances = np.array(self._glances, np.int64).reshape(-1, len(Glance._fields))
        order = sorted(range(len(self._paths)), key=self._paths.__getitem__)
        rows = np.array(order, np.int64)
        return Finds([self._paths[row] for row in order], settings[rows], glances[rows], self._left_out)

    def _choose_names(self, known: pa.Array) -> None:
        """Keep one name of each file that has several, and every name that the folder knows."""
        groups = {at: self._by_key(sorted({*more, self._name(at)})) for at, more in self._more.items()}
        asked = pa.array(sorted({key for names in groups.values() for key in names}), pa.string())
        is_known = set(asked.filter(pc.is_in(asked, value_set=known)).to_pylist())
        width = len(Glance._fields)
        for at, names in groups.items():
            first, *others = [key for key in names if key in is_known] or list(names)[:1]
            position = min(name.settings for name in names.values())
            glance = self._glances[at * width : (at + 1) * width]
            self._paths[at], self._settings[at] = names[first].path, position
            for key in others:
                self._paths.append(names[key].path)
                self._settings.append(position)
                self._glances.extend(glance)
            self._left_out |= {names[key].path: SAME_FILE for key in names.keys() - {first, *others}}

    def _name(self, at: int) -> _Name:
        return _Name(self._settings[at], bool(self._through_link[at]), self._paths[at])

    def _by_key(self, names: Sequence[_Name]) -> dict[str, _Name]:
        """Return the names by their keys: two spellings of one path are one name."""
        found: dict[str, _Name] = {}
        for name in names:
            key = key_of(name.path, self._base)
            if key not in found or name.path == key:
                found[key] = name
        return found
