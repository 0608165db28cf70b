"""Tables of a plan as files whose content is compared when they are opened, and the sealed JSON file that names them.

Source indices cannot be worked out again once files were added, so what holds them is kept twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from shards import sealed
from shards.errors import IncompleteError
from shards.marker import from_bytes, to_bytes
from shards.store import FileEntry, Store

FOLDER: Final = "plan"
COPY: Final = f"{FOLDER}/copy"
_HASH_CHARS: Final = 16


def write_parts(store: Store, kind: str, parts: Iterable[pa.Table], *, twice: bool = False) -> list[dict[str, Any]]:
    """Write the parts of a table below ``plan/``, under names that hold their content's hash; return their entries.

    So nothing that an older plan names is written over before the newer one is whole.
    """
    entries = []
    for number, part in enumerate(parts):
        data = to_bytes(part)
        digest = hashlib.sha256(data).hexdigest()
        name = f"{kind}/{number:05d}-{digest[:_HASH_CHARS]}.arrow"
        for folder in (FOLDER, COPY) if twice else (FOLDER,):
            _put(store, f"{folder}/{name}", data)
        entries.append(vars(FileEntry(f"{FOLDER}/{name}", digest, len(data), part.num_rows)))
    return entries


def _put(store: Store, path: str, data: bytes) -> None:
    # Most of a large plan is there already. Its size alone would not show a bit that flipped.
    if store.size(path) != len(data) or store.read_bytes(path) != data:
        store.write_bytes(path, data)


def read_parts(store: Store, entries: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return a table from its parts; a copy stands in for a part that is missing or damaged.

    Raises:
        IncompleteError: if a part and its copy, where it has one, are not what was written.
    """
    tables = [from_bytes(_content(store, entry["path"])) for entry in entries]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _content(store: Store, path: str) -> bytes:
    try:
        return store.read_named(path, copy_of(path))
    except IncompleteError as error:
        raise _damaged(store, path) from error


def copy_of(path: str) -> str:
    """Return where the copy of a file below ``plan/`` is."""
    return f"{COPY}/{path.removeprefix(FOLDER + '/')}"


def write_sealed(store: Store, path: str, value: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum, and a copy of it."""
    for place in (path, copy_of(path)):
        sealed.write_sealed(store, place, value)


def read_sealed(store: Store, path: str) -> dict[str, Any] | None:
    """Return what ``write_sealed`` wrote, None where it never wrote anything.

    Raises:
        IncompleteError: if neither the file nor its copy is what was written.
    """
    there = [place for place in (path, copy_of(path)) if store.exists(place)]
    unsealed = None
    for place in there:
        try:
            return sealed.read_sealed(store, place)
        except sealed.UnsealedError as error:
            unsealed = error
        except IncompleteError:
            continue
    # Without a seal and without a copy, an earlier version wrote it.
    if unsealed is not None and len(there) == 1:
        raise unsealed
    if not there:
        return None
    raise _damaged(store, path)


def delete_others(store: Store, folder: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Delete the files of one kind, and their copies, that none of ``entries`` names."""
    wanted = {path for entry in entries for path in (entry["path"], copy_of(entry["path"]))}
    for place in (f"{FOLDER}/{folder}", f"{COPY}/{folder}"):
        for path in store.list(place):
            if path not in wanted:
                store.delete(path)


def _damaged(store: Store, path: str) -> IncompleteError:
    return IncompleteError(
        f"{path} is not what was written, nor is there a copy of it",
        place=store.root,
        remedy="Run the recipe again; if that says the same, restore the folder 'plan', or use a new --out folder",
    )
