"""One lock per run folder: curation rewrites files that training maps into memory, so only one process works there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shards.errors import UserError

LOCK_FILE: Final = ".lock"
"""Name of the lock file in a run's folder. What counts is the kernel's lock on it, not its existence."""


@contextmanager
def locked(path: Path, place: str) -> Iterator[None]:
    """Hold an exclusive lock on a file in an existing folder; the kernel releases it however the process ends.

    Args:
        path: the file; created if it is missing.
        place: what is locked, for the message.

    Raises:
        UserError: at once if another process holds the lock, or if there is no such folder.
    """
    if not path.parent.is_dir():
        raise UserError("there is no such folder", place=place, remedy="Fix the path")
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
