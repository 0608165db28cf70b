"""Local files under their names: what each name leads to, so that one file under two names is read once.

Symbolic links are followed, of files and of folders. Hard links are files of their own: a copy of the corpus makes them
so, and it must give the same documents.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from pipelines.planning.places import below, spelled
from pipelines.planning.probe import Glance


class Look(NamedTuple):
    """What a local name leads to.

    Attributes:
        real: the file's own place, relative to the recipe's folder below it, no link in it; empty where nothing is
            there to read.
        glance: what the file system says of the file.
        through_link: whether the name, or a folder in it, is a link.
        problem: why there is nothing to read: ``missing``, ``dangling``, ``folder``, ``special``; empty for a file.
    """

    real: str
    glance: Glance
    through_link: bool
    problem: str


_NOTHING = Glance(0)


class LocalFiles:
    """Looks at local names, relative to the recipe's folder or absolute. May be used by several threads."""

    def __init__(self, base: str) -> None:
        self._base, self._real_base = base, os.path.realpath(base)
        self._folders: dict[str, tuple[str, bool]] = {}

    def look(self, paths: Sequence[str]) -> list[Look]:
        """Return what each of ``paths`` leads to.

        Raises:
            OSError: if a folder on the way may not be entered.
        """
        return [self._look(path) for path in paths]

    def _look(self, path: str) -> Look:
        full = os.path.join(self._base, path)
        try:
            found = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return Look("", _NOTHING, False, "missing")
        is_link = stat.S_ISLNK(found.st_mode)
        if is_link:
            try:
                found = os.stat(full)
            except OSError:
                # Also one that leads to itself, or into a folder that may not be entered.
                return Look("", _NOTHING, True, "dangling")
        if not stat.S_ISREG(found.st_mode):
            return Look("", _NOTHING, is_link, "folder" if stat.S_ISDIR(found.st_mode) else "special")
        glance = Glance.of_stat(found)
        if is_link:
            return Look(below(os.path.realpath(full), self._real_base), glance, True, "")
        folder, _, name = path.rpartition("/")
        real_folder, through_link = self._folder(folder or ("/" if path.startswith("/") else ""))
        real = real_folder + name
        # A million names need not be held twice.
        return Look(path if real == path else real, glance, through_link, "")

    def _folder(self, folder: str) -> tuple[str, bool]:
        """Return (a folder's own place with a slash behind it, whether there is a link on the way)."""
        if folder not in self._folders:
            full = os.path.realpath(os.path.join(self._base, folder))
            place = "" if full == self._real_base else below(full, self._real_base).rstrip("/") + "/"
            through_link = full != spelled(os.path.join(self._real_base, folder))
            self._folders[folder] = (place, through_link)
        return self._folders[folder]
