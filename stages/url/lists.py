"""The files that a blacklist consists of: folders in UT1 layout, and plain files."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from shards.errors import UserError

_PLACE: Final = "url_blacklist_v1"
_KINDS: Final = ("domains", "urls")


class ListFile(NamedTuple):
    """A file of entries, one a line."""

    path: str
    category: str
    kind: Literal["domains", "urls", "mixed"]


def list_files(lists: tuple[str, ...], categories: tuple[str, ...]) -> list[ListFile]:
    """Return the files of entries in the order of ``lists``, and within a folder by category, each file once.

    With empty ``categories``, those that a folder declares black are taken: ``usage`` says ``black`` before it says
    ``white``, and ``global_usage``, if the folder has one, does not give them ``DEFAULT_TYPE: white``. A link to
    another category is that category; a link to anywhere outside the folder is not followed.

    Raises:
        UserError: if a list or a category does not exist, or nothing is left to block.
    """
    found: list[ListFile] = []
    folders = [_root(Path(name)) for name in lists if Path(name).is_dir()]
    _check_known(folders, categories)
    for name in lists:
        path = Path(name)
        if path.is_dir():
            found += _folder_files(_root(path), categories)
        elif path.is_file():
            found.append(ListFile(str(path), path.stem, "mixed"))
        else:
            raise UserError(
                f"there is no blacklist at {name}", place=f"lists of {_PLACE}", remedy="Correct the path or remove it"
            )
    return list(dict.fromkeys(found))


def digest_files(lists: tuple[str, ...], categories: tuple[str, ...]) -> tuple[str, ...]:
    """Return every file on which it depends what is blocked: the lists, and what declares their categories."""
    files = {file.path for file in list_files(lists, categories)}
    if not categories:
        for root in (_root(Path(name)) for name in lists if Path(name).is_dir()):
            declared = [root / "global_usage", *(folder / "usage" for folder in _category_folders(root))]
            files |= {str(path) for path in declared if path.is_file() and _inside(path, root)}
    return tuple(sorted(files))


def _root(folder: Path) -> Path:
    inner = folder / "blacklists"
    return inner if inner.is_dir() else folder


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _category_folders(root: Path) -> list[Path]:
    """Return the categories' own folders, sorted; links to them are only other names."""
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and not folder.is_symlink())


def _check_known(folders: list[Path], categories: tuple[str, ...]) -> None:
    known = sorted({entry.name for root in folders for entry in root.iterdir() if entry.is_dir()})
    for name in categories:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            raise UserError(
                f"no list has a category {name!r}",
                place=f"categories of {_PLACE}",
                remedy=f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}",
            )


def _folder_files(root: Path, categories: tuple[str, ...]) -> list[ListFile]:
    if categories:
        chosen = [root / name for name in categories if (root / name).is_dir()]
    else:
        declared = _default_types(root)
        chosen = [folder for folder in _category_folders(root) if _is_black(folder, root, declared)]
        if not chosen:
            raise UserError(
                f"no category in {root} is declared black", place=f"lists of {_PLACE}", remedy="Name the categories"
            )
    files = []
    for folder in chosen:
        if not _inside(folder, root):
            raise UserError(f"category {folder.name!r} is a link out of {root}", remedy="Name the folder it leads to")
        real = folder.resolve()
        paths = [(real / kind, kind) for kind in _KINDS if (real / kind).is_file()]
        if not paths and categories:
            raise UserError(f"category {folder.name!r} of {root} holds neither domains nor urls", remedy="Remove it")
        for path, kind in paths:
            if not _inside(path, root):
                raise UserError(f"{path} is a link out of {root}", remedy="Put the list itself there")
            files.append(ListFile(str(path), real.name, "domains" if kind == "domains" else "urls"))
    return files


def _is_black(folder: Path, root: Path, declared: Mapping[str, str]) -> bool:
    usage = folder / "usage"
    if not usage.is_file() or not _inside(usage, root) or declared.get(folder.name) == "white":
        return False
    words = (line.strip().lower() for line in usage.read_text("utf-8", "replace").splitlines())
    return next((word for word in words if word in ("black", "white")), "white") == "black"


def _default_types(root: Path) -> dict[str, str]:
    """Read ``global_usage``: the DEFAULT_TYPE, black or white, by category."""
    types: dict[str, str] = {}
    name, path = "", root / "global_usage"
    readable = path.is_file() and _inside(path, root)
    for line in path.read_text("utf-8", "replace").splitlines() if readable else ():
        key, _, value = line.partition(":")
        if key.strip() == "NAME":
            name = value.strip()
        elif key.strip() == "DEFAULT_TYPE" and name:
            types[name] = value.strip().lower()
    return types
