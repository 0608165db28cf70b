"""Files that are made of others, once on a machine: kept under the digest of what they are made of, beside the copies
of remote files.

Processes that need the same one wait for the first that makes it. It is published whole, by one renaming; whoever opens
it checks it, and what is damaged is made anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from shards.files import cache_folder, hash_file

T = TypeVar("T")


def digest_of(files: Sequence[str], *said: str) -> str:
    """Return a digest of the content of local files, in order, and of what is ``said`` beside.

    A file that was hashed once on this machine is hashed again only when its size, inode or a time of it has changed.
    """
    digest = hashlib.sha256("\0".join(said).encode())
    for name in files:
        digest.update(_content(Path(name)).encode())
    return digest.hexdigest()


def _content(path: Path) -> str:
    path = path.resolve()
    stat = path.stat()
    version = f"{path}\0{stat.st_size}\0{stat.st_ino}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}"
    note = cache_folder() / f"{hashlib.sha256(version.encode()).hexdigest()}.sha256"
    if note.is_file() and len(known := note.read_text()) == 64:
        return known
    found, _ = hash_file(path)
    _publish(note, lambda out: out.write_text(found))
    return found


def derived(name: str, make: Callable[[Path], None], open_it: Callable[[Path], T]) -> T:
    """Return what ``open_it`` gives of the file ``name``, which ``make`` writes where it is missing or damaged.

    Args:
        name: holds the digest of all that the file is made of, and the version of its format.
        make: writes it to a path.
        open_it: opens it; raises ``ValueError`` if it is not whole.
    """
    path = cache_folder() / name
    with contextlib.suppress(FileNotFoundError, ValueError):
        return open_it(path)
    with _alone(path):
        with contextlib.suppress(FileNotFoundError, ValueError):
            return open_it(path)
        _publish(path, make)
    return open_it(path)


def _publish(path: Path, make: Callable[[Path], object]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent)
    os.close(handle)
    try:
        make(Path(name))
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process at a time make a file; where files cannot be locked, each makes its own, the same."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
