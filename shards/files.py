"""Files anywhere, read by path or URI, whether or not they are a run's: sources, models, lists.

Local folders, S3, GCS and Azure come with pyarrow; any other scheme goes through its fsspec handler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.fs as pafs

from shards.errors import IncompleteError, UserError

_READ_BYTES: Final = 1 << 20
_FRAGMENT: Final = "#sha256="
_checked: set[tuple[str, str]] = set()


def file_system(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return (file system, path in it) of a local path or a URI.

    Raises:
        UserError: if no file system for the scheme is at hand.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), os.path.abspath(uri)
    try:
        return cast(tuple[pafs.FileSystem, str], pafs.FileSystem.from_uri(uri))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    try:
        import fsspec

        return pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem(scheme))), rest
    except (ImportError, ValueError) as error:
        raise UserError(
            f"no file system for {scheme}://",
            place=uri,
            remedy=f"Install fsspec and its handler for {scheme}, or use a local path ({error})",
        ) from error


def open_input(uri: str) -> BinaryIO:
    """Open a source for reading in sequence, as bytes. The caller closes it.

    Raises:
        OSError: if it is missing or cannot be read.
    """
    fs, path = file_system(uri)
    # Uncompressed always: readers look at the bytes themselves, a name's ending may lie.
    return cast(BinaryIO, fs.open_input_file(path))


def fetch(uri: str) -> Path:
    """Return a local path with the content of a local path or URI: a copy is made once per machine and version.

    Raises:
        OSError: if it is missing or cannot be read.
        IncompleteError: if the URI says what its content's hash is (``with_hash``), and it is another.
    """
    if "://" not in uri:
        return Path(uri)
    uri, _, sha256 = uri.partition(_FRAGMENT)
    if sha256:
        return cached_copy(uri, sha256)
    fs, path = file_system(uri)
    info = fs.get_file_info(path)
    version = f"{uri}\0{info.size}\0{info.mtime_ns}"
    return _cached(uri, hashlib.sha256(version.encode()).hexdigest())


def with_hash(uri: str, sha256: str) -> str:
    """Return a URI that says what its content's hash is, for ``fetch`` to compare."""
    return f"{uri}{_FRAGMENT}{sha256}"


def cached_copy(uri: str, sha256: str) -> Path:
    """Return a local copy of a URI, compared with its hash once per process.

    Raises:
        IncompleteError: if its content is another.
    """
    for _ in range(2):
        copy, key = _cached(uri, sha256), (uri, sha256)
        if key in _checked or hash_file(copy)[0] == sha256:
            _checked.add(key)
            return copy
        # The first look may find a copy that a kill cut short.
        copy.unlink()
    raise IncompleteError(f"{uri} is not what was written", remedy="Run the recipe again")


def cache_folder() -> Path:
    """Return this user's folder, on this machine, of files that can be fetched or made again."""
    folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _cached(uri: str, key: str) -> Path:
    copy = cache_folder() / f"{key}{PurePosixPath(uri).suffix}"
    if copy.is_file():
        return copy
    with tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as out, open_input(uri) as file:
        shutil.copyfileobj(file, out, _READ_BYTES)
    os.replace(out.name, copy)
    return copy


def hash_file(path: Path) -> tuple[str, int]:
    """Return (sha256 in hex, size in bytes) of a local file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
