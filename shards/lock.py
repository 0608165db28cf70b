"""One lock for a run's folder: curation rewrites what training maps into memory, so only one process works there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shards.errors import UserError

LOCK_FILE: Final = ".lock"
"""In the run's folder. What counts is the kernel's lock on it, not that it is there."""


@contextmanager
def locked(path: Path, place: str) -> Iterator[None]:
    """Hold an exclusive lock on a file of an existing folder; the kernel releases it at any death.

    Args:
        path: the file, made where it is missing.
        place: what the lock is of, for the message.

    Raises:
        UserError: if another process holds it, which is not waited for, or there is no such folder.
    """
    if not path.parent.is_dir():
        raise UserError("there is no such folder", place=place, remedy="Mend its path")
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(20).strip()
            named = f" (process {holder})" if holder.isdecimal() else ""
            raise UserError(
                f"another process is working in this folder{named}", place=place, remedy="Wait for it, or stop it"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
