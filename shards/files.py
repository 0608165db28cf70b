"""Files anywhere, read by path or URI, whether or not they are a run's: sources, models, lists.

Local folders, S3, GCS and Azure come with pyarrow; any other scheme goes through its fsspec handler.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.fs as pafs

from shards.errors import IncompleteError, UserError

_READ_BYTES: Final = 1 << 20
_FRAGMENT: Final = "#sha256="
# Of errors that a handler raises without a number.
_NUMBERS: Final = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    FileExistsError: errno.EEXIST,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    TimeoutError: errno.ETIMEDOUT,
}
_PARTIAL: Final = ".partial"
_checked: set[tuple[str, str]] = set()

SMALL_BYTES: Final = 1 << 20
"""A file elsewhere of this size at most is fetched by one request, however it is then read."""


@contextlib.contextmanager
def naming(place: str | os.PathLike[str]) -> Iterator[None]:
    """Let an error of the system in the body say which file it is of, where it does not say so itself.

    Arrow, and Python where it writes, name none: "No space left on device" alone does not say on which.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise named(error, place) from error


def named(error: OSError, place: str | os.PathLike[str]) -> OSError:
    """Return an error of the system that names its file."""
    number = error.errno or _NUMBERS.get(type(error), errno.EIO)
    # Of a disk, the system's own words; of a server, what it said.
    what = os.strerror(number) if "://" not in os.fspath(place) else (error.strerror or str(error))
    return OSError(number, what, os.fspath(place))


def file_system(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return (file system, path in it) of a local path or a URI.

    Raises:
        UserError: if no file system for the scheme is at hand.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), os.path.abspath(uri)
    try:
        fs, path = pafs.FileSystem.from_uri(uri)
        return _patient(fs), cast(str, path)
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


def _patient(fs: pafs.FileSystem) -> pafs.FileSystem:
    """Return a file system that sends a file of a few MB by one request, where it can: S3 takes three by default."""
    if not isinstance(fs, pafs.S3FileSystem):
        return fs
    rebuild, (settings,) = fs.__reduce__()
    return rebuild({**settings, "allow_delayed_open": True})


def open_input(uri: str) -> BinaryIO:
    """Open a source for reading in sequence, as bytes. The caller closes it.

    Raises:
        OSError: if it is missing or cannot be read.
    """
    fs, path = file_system(uri)
    with naming(uri):
        # Uncompressed always: readers look at the bytes themselves, a name's ending may lie.
        file = fs.open_input_file(path)
        if isinstance(fs, pafs.LocalFileSystem) or file.size() > SMALL_BYTES:
            return cast(BinaryIO, file)
        with file:
            return io.BytesIO(file.read())


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


def own_temporary_folder() -> Path:
    """Return this user's folder on the machine's own disk, for copies of remote files and for scratch. It may be
    missing.
    """
    return Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"


def cache_folder() -> Path:
    """Return ``own_temporary_folder()``, for files that can be fetched or made again, after making it."""
    folder = own_temporary_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _cached(uri: str, key: str) -> Path:
    copy = cache_folder() / f"{key}{PurePosixPath(uri).suffix}"
    if copy.is_file():
        return copy
    _remove_partial(copy.parent)
    part = copy.parent / f"{key}.{os.getpid()}-{threading.get_ident()}{_PARTIAL}"
    try:
        with naming(part), part.open("wb") as out, open_input(uri) as file:
            shutil.copyfileobj(file, out, _READ_BYTES)
        os.replace(part, copy)
    finally:
        part.unlink(missing_ok=True)
    return copy


def _remove_partial(folder: Path) -> None:
    """Remove copies that a process began which is no more."""
    for part in folder.glob(f"*{_PARTIAL}"):
        pid = part.name.removesuffix(_PARTIAL).rpartition(".")[2].partition("-")[0]
        if not (pid.isdecimal() and is_running(int(pid))):
            part.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    """Return whether there is a process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def hash_file(path: Path) -> tuple[str, int]:
    """Return (sha256 in hex, size in bytes) of a local file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
