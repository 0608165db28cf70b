"""Where a run's files live: one class over pyarrow's file systems, used by curation and training alike.

A file appears whole or not at all, under a name that holds its content's hash, so repeated attempts converge on one
name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.fs as pafs

from shards.errors import IncompleteError, UserError
from shards.files import SMALL_BYTES, cached_copy, file_system, hash_file, naming, own_temporary_folder, with_hash

SCRATCH: Final = ".scratch"
"""Folder for files not published yet; whatever a killed run leaves there is not part of any output."""

UNFINISHED: Final = "unfinished"
"""Folder for what a pass keeps until it is finished, ``unfinished/{pass}/{kind}``: then it goes by one deletion.

File by file, an object store takes three requests for each, and is left with an empty object in place of the folder.
"""

_HASH_CHARS: Final = 16
_checked: set[tuple[str, str, str]] = set()
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class FileEntry:
    """A published file: path relative to the store's root, sha256 in hex, size in bytes, rows of its table."""

    path: str
    sha256: str
    size: int
    rows: int

    @classmethod
    def of(cls, path: str, data: bytes) -> FileEntry:
        """Return the entry of a small file with a fixed name."""
        return cls(path, hashlib.sha256(data).hexdigest(), len(data), 1)

    @property
    def is_named_by_content(self) -> bool:
        """Whether the name holds the content's hash, as ``Store.publish`` gives it."""
        return hash_in(self.path) == self.sha256[:_HASH_CHARS]


def hash_in(path: str) -> str:
    """Return the part of a published file's name that holds its content's hash."""
    return PurePosixPath(path).stem.rpartition("-")[2]


class Store:
    """A folder of output, on any file system. Paths given to it are relative, with ``/``, and never lead out of it."""

    def __init__(self, root: str | os.PathLike[str], *, repairs: bool = False) -> None:
        """Open a folder.

        Args:
            root: a local path or a URI.
            repairs: whether a file that is not what was written is deleted when that is found, so that a run makes it
                again. Only for a run's driver and its workers: whoever merely reads must not.
        """
        self.root = os.fspath(root)
        self.repairs = repairs
        self._fs, self._base = file_system(self.root)
        self.is_local = isinstance(self._fs, pafs.LocalFileSystem)

    def _full(self, path: str) -> str:
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or "\\" in path or not path:
            raise UserError(f"the path {path!r} leads out of its folder", place=self.root)
        full = f"{self._base.rstrip('/')}/{path}"
        if self.is_local and not Path(full).resolve().is_relative_to(Path(self._base).resolve()):
            raise UserError(f"the path {path!r} leads out of its folder by a link", place=self.root)
        return full

    def local_path(self, path: str) -> Path | None:
        """Return the local path for memory mapping, None where the store is remote."""
        return Path(self._full(path)) if self.is_local else None

    def uri(self, path: str) -> str:
        """Return a file's place for others: its local path, or its URI."""
        full = self._full(path)
        return full if self.is_local else f"{self.root.rstrip('/')}/{path}"

    def checked_uri(self, entry: FileEntry) -> str:
        """Return a published file's place for ``fetch``, which compares what it fetches: a local path, or a URI."""
        return self.uri(entry.path) if self.is_local else with_hash(self.uri(entry.path), entry.sha256)

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        with naming(self.uri(path)):
            return bool(self._fs.get_file_info(self._full(path)).type == pafs.FileType.File)

    def size(self, path: str) -> int | None:
        """Return the size in bytes, None where there is no such file."""
        with naming(self.uri(path)):
            info = self._fs.get_file_info(self._full(path))
        return cast(int, info.size) if info.type == pafs.FileType.File else None

    def files_in_root(self) -> dict[str, int | None]:
        """Return the files directly in the folder, with the time when each was written by the store's clock, in ns.

        Without a time where the store gives none.
        """
        selector = pafs.FileSelector(self._base, allow_not_found=True)
        with naming(self.root):
            listed = self._fs.get_file_info(selector)
        return {PurePosixPath(i.path).name: self._written_ns(i) for i in listed if i.type == pafs.FileType.File}

    def _written_ns(self, info: pafs.FileInfo) -> int | None:
        handler = getattr(self._fs, "handler", None)
        if info.mtime_ns is None and isinstance(handler, pafs.FSSpecHandler):
            # Each handler has a name of its own for the time, but this.
            with contextlib.suppress(NotImplementedError, FileNotFoundError):
                return int(1e9 * handler.fs.modified(info.path).timestamp())
        return cast("int | None", info.mtime_ns)

    def create(self, path: str, data: bytes) -> bool | None:
        """Write a small file on the condition that there is none, and return whether it was written.

        None, with nothing written, where the client of this store knows no such condition: Arrow's own know none.
        """
        handler = getattr(self._fs, "handler", None)
        if not isinstance(handler, pafs.FSSpecHandler):
            return None
        with naming(self.uri(path)):
            try:
                handler.fs.pipe_file(self._full(path), data, mode="create")
            except FileExistsError:
                return False
            except (NotImplementedError, TypeError, ValueError):
                return None
        return True

    def list(self, folder: str) -> list[str]:
        """Return the relative paths of all files below ``folder``, "." for all, sorted; none if it is missing."""
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size in bytes of every file below ``folder``, by relative path, sorted: in one listing."""
        where = self._full(folder.rstrip("/")) if PurePosixPath(folder).parts else self._base
        selector = pafs.FileSelector(where, allow_not_found=True, recursive=True)
        with naming(where if self.is_local else f"{self.root.rstrip('/')}/{folder}"):
            listed = self._fs.get_file_info(selector)
        found = (info for info in listed if info.type == pafs.FileType.File)
        # Some fsspec handlers give paths with a leading slash, however they were asked.
        base = self._base.strip("/")
        return dict(sorted((str(PurePosixPath(i.path.strip("/")).relative_to(base)), cast(int, i.size)) for i in found))

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random access, memory-mapped where it is local.

        Raises:
            IncompleteError: if it is missing.
        """
        full = self._full(path)
        try:
            with naming(self.uri(path)):
                return pa.memory_map(full) if self.is_local else self._opened(full)
        except FileNotFoundError as error:
            raise IncompleteError(
                f"{path} is missing", place=self.root, remedy="Run the recipe again; finished work is kept"
            ) from error

    def _opened(self, full: str) -> pa.NativeFile:
        file = self._fs.open_input_file(full)
        if file.size() > SMALL_BYTES:
            return file
        with file:
            return pa.BufferReader(file.read_buffer())

    def open_checked(self, entry: FileEntry) -> pa.NativeFile:
        """Open a published file whose content is compared with its entry, the first time that this process opens it.

        Raises:
            IncompleteError: if it is missing, or not what was written: a bit that flipped must not become a document.
        """
        file = self.open(entry.path)
        key = (self.root, entry.path, entry.sha256)
        if key not in _checked:
            if _hash_of(file) != entry.sha256:
                file.close()
                # Fetched twice before it is called damaged: what came over a network may have been cut short.
                file = self.open(entry.path)
                if _hash_of(file) != entry.sha256:
                    file.close()
                    raise self.damaged(entry.path)
            _checked.add(key)
            file.seek(0)
        return file

    def damaged(self, path: str) -> IncompleteError:
        """Return the error of a file that is not what was written; where the store ``repairs``, delete the file."""
        remedy = f"Run 'headrace verify {self.root}', which deletes it, and then the recipe again"
        if self.repairs:
            self.delete(path)
            remedy = "Run the recipe again: what this file is part of, and nothing else, is made anew"
        return IncompleteError(
            f"{path} is not what was written: its content has changed since", place=self.root, remedy=remedy
        )

    def read_named(self, path: str, *copies: str) -> bytes:
        """Return a whole small file whose name holds its content's hash, or the first of its copies that is whole.

        Raises:
            IncompleteError: if none is there whose content is what its name says.
        """
        try:
            for _ in range(2):
                data = self.read_bytes(path)
                if hashlib.sha256(data).hexdigest()[:_HASH_CHARS] == hash_in(path):
                    return data
            raise self.damaged(path)
        except IncompleteError:
            if not copies:
                raise
        return self.read_named(*copies)

    def publish_bytes(self, data: bytes, folder: str, stem: str, suffix: str, rows: int) -> FileEntry:
        """Write a small file under a name that holds its content's hash, and return its entry."""
        digest = hashlib.sha256(data).hexdigest()
        path = f"{folder}/{stem}-{digest[:_HASH_CHARS]}{suffix}"
        self.write_bytes(path, data)
        return FileEntry(path, digest, len(data), rows)

    def read_bytes(self, path: str) -> bytes:
        """Return a whole small file."""
        with self.open(path) as file, naming(self.uri(path)):
            return cast(bytes, file.read())

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to a local path, whose folder is made.

        Raises:
            IncompleteError: if it is missing.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with self.open(path) as file, naming(target), target.open("wb") as out:
            shutil.copyfileobj(file, out, _READ_BYTES)

    def read_json(self, path: str) -> Any:
        """Return a JSON file's value.

        Raises:
            IncompleteError: if it is missing or not JSON.
        """
        data = self.read_bytes(path)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise IncompleteError(
                f"{path} is not JSON: {error}", place=self.root, remedy="Run the recipe again; finished work is kept"
            ) from error

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a small file whole: temporary name, fsync and rename locally, one PUT elsewhere."""
        full = self._full(path)
        with naming(self.uri(path)):
            if not self.is_local:
                self._put(full, lambda: self._send(full, data))
                return
            with self.scratch() as folder:
                temporary = folder / "file"
                with temporary.open("wb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
                _replace(temporary, Path(full))

    def _send(self, full: str, data: bytes) -> None:
        with self._fs.open_output_stream(full) as out:
            out.write(data)

    def _put(self, full: str, put: Callable[[], None]) -> None:
        """Put a file elsewhere. Folders are made only where they are found to be missing: object stores have none."""
        try:
            put()
        except FileNotFoundError:
            self._fs.create_dir(str(PurePosixPath(full).parent), recursive=True)
            put()

    def write_json(self, path: str, value: Any) -> None:
        """Write a value as JSON, keys in the order given: the same value gives the same bytes."""
        self.write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())

    def publish(self, local: Path, folder: str, stem: str, rows: int) -> FileEntry:
        """Move a finished local file to ``folder/{stem}-{hash}{suffix}`` and return its entry."""
        digest, size = hash_file(local)
        path = f"{folder}/{stem}-{digest[:_HASH_CHARS]}{local.suffix}"
        full = self._full(path)
        with naming(self.uri(path)):
            if self.is_local:
                with local.open("rb+") as file:
                    os.fsync(file.fileno())
                _replace(local, Path(full))
            else:
                self._put(full, lambda: self._copy(local, full))
                local.unlink()
        return FileEntry(path, digest, size, rows)

    def _copy(self, local: Path, full: str) -> None:
        pafs.copy_files(str(local), full, source_filesystem=pafs.LocalFileSystem(), destination_filesystem=self._fs)

    def local_copy(self, entry: FileEntry) -> Path:
        """Return a local path with a published file's content: the file itself, or a copy named by its hash.

        Raises:
            IncompleteError: if the content is not what its entry says.
        """
        if (local := self.local_path(entry.path)) is not None:
            self.open_checked(entry).close()
            return local
        try:
            return cached_copy(self.uri(entry.path), entry.sha256)
        except IncompleteError:
            raise self.damaged(entry.path) from None

    def delete(self, path: str) -> None:
        """Delete a file."""
        with naming(self.uri(path)):
            self._fs.delete_file(self._full(path))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder and all that is in it, if it is there."""
        full = self._full(folder)
        with naming(self.uri(folder)):
            if self._fs.get_file_info(full).type == pafs.FileType.Directory:
                self._fs.delete_dir(full)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a fresh local folder, on the store's own disk where it is local, and remove it afterwards."""
        parent = self._scratch_folder()
        with naming(parent):
            parent.mkdir(mode=0o777 if self.is_local else 0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix="w-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _scratch_folder(self) -> Path:
        if self.is_local:
            return Path(self._base) / SCRATCH
        return own_temporary_folder() / f"scratch-{hashlib.sha256(self.root.encode()).hexdigest()[:_HASH_CHARS]}"

    def clear_scratch(self) -> None:
        """Remove what killed attempts left behind on this machine. Only for the one driver of a run, without workers.

        Raises:
            OSError: if that cannot be.
        """
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._scratch_folder())


def _hash_of(file: pa.NativeFile) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(_READ_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _replace(temporary: Path, final: Path) -> None:
    """Rename, durably: a machine that loses power after a marker is written must still hold what it marks."""
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(temporary, final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
