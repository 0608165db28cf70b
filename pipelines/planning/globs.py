"""Globs of a recipe: which files a pattern names, on this machine or elsewhere."""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow.fs as pafs

from pipelines.planning.places import DECODED, encoded, is_uri, sibling_and_key, spelled
from pipelines.planning.probe import Glance
from shards.files import file_system


def as_local(pattern: str) -> str | None:
    """Return a glob as a local one, None if it is of a file system elsewhere."""
    if pattern.lower().startswith("file://"):
        return spelled(pattern)
    return None if is_uri(pattern) else pattern


def local_names(pattern: str, base: str) -> list[str]:
    """Return every name that a local glob matches, folders and links to nothing among them, in any order."""
    return [spelled(name.replace(os.sep, "/")) for name in glob.glob(pattern, root_dir=base, recursive=True)]


def remote_files(pattern: str) -> Iterator[tuple[str, Glance]]:
    """Yield (URI, what its file system says of it) of every file that a glob over a URI matches."""
    # Only the folder before the first wildcard is a URI: a bracket or question mark would mean something else in one.
    where = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    rest = pattern[len(where) + 1 :]
    is_decoded = where.partition("://")[0].lower() in DECODED
    if is_decoded:
        where, rest = spelled(where), unquote(rest, errors="surrogateescape")
    fs, folder = file_system(where)
    wanted = rest.split("/")
    selector = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
    for info in fs.get_file_info(selector):
        if info.type != pafs.FileType.File:
            continue
        # Some fsspec handlers give paths with a leading slash, however they were asked.
        path = PurePosixPath(info.path.strip("/")).relative_to(folder.strip("/"))
        if matches(path.parts, wanted):
            yield f"{where}/{encoded(str(path)) if is_decoded else path}", Glance.of_info(info)


def matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a path matches a glob, part by part: ``*`` stays inside a folder, ``**`` is any number of them."""
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return matches(parts, wanted[1:]) or (bool(parts) and matches(parts[1:], wanted))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and matches(parts[1:], wanted[1:])


def remote_glances(uris: Sequence[str]) -> list[Glance | None]:
    """Return size and times of URIs, spelt as in the plan; None where there is no file."""
    by_root: dict[str, list[tuple[int, str]]] = {}
    for number, uri in enumerate(uris):
        sibling, key = sibling_and_key(uri)
        by_root.setdefault(sibling, []).append((number, key))
    found: list[Glance | None] = [None] * len(uris)
    for sibling, members in by_root.items():
        fs, path = _file_system(sibling)
        infos = fs.get_file_info([path[:-1] + key for _, key in members])
        for (number, _), info in zip(members, infos, strict=True):
            found[number] = Glance.of_info(info) if info.type == pafs.FileType.File else None
    return found


@functools.lru_cache(maxsize=64)
def _file_system(uri: str) -> tuple[pafs.FileSystem, str]:
    return file_system(uri)
