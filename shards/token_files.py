"""The files of tokens that a reader has open: a bounded number of them mapped, the others read span by span."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shards.errors import IncompleteError, UserError

_REPLACE_EVERY: Final = 16
"""Of the misses of a full cache, one in so many maps its file in place of another.

Under an order that jumps between far more files than may be open, mapping each of them to read one document costs three
times as much as reading it. Where a window of files moves on, its files are all mapped after a few hundred misses.
"""

_MAGIC: Final = b"ARROW1"

Span = tuple[int, int, int]
"""A span to copy: the first token in the file, the number of tokens, and where they go in the buffer."""


class TokenFiles:
    """Files of tokens below one folder, at most ``limit`` of them mapped at once. Thread-safe.

    Args:
        folder: the folder that all paths are relative to.
        dtype: dtype of the tokens.
        limit: files kept mapped; each holds a file descriptor.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any], limit: int) -> None:
        self._folder, self._dtype, self._limit = folder, dtype, limit
        self._parents: dict[str, str] = {}
        self._mapped: OrderedDict[str, memoryview] = OrderedDict()
        self._misses = 0
        self._lock = threading.Lock()

    @property
    def mapped(self) -> int:
        """The number of files that are mapped."""
        return len(self._mapped)

    def copy(self, relative: str, size: int, values_at: int, spans: list[Span], out: npt.NDArray[Any]) -> None:
        """Copy spans of one file into a flat buffer.

        Args:
            relative: path of the file.
            size: bytes that the file must have; ``values_at`` is where in it the first token lies.
            values_at: see ``size``.
            spans: what to copy, within the file.
            out: one dimension, any integer dtype that holds a token; that of the tokens is fastest.

        Raises:
            IncompleteError: if the file is missing, has another size, or is not an Arrow file.
            UserError: if the path leads out of the folder.
        """
        with self._lock:
            values = self._mapped.get(relative)
            if values is not None:
                self._mapped.move_to_end(relative)
            else:
                descriptor = self._open(relative, size)
                try:
                    if not self._is_worth_mapping():
                        self._read(descriptor, values_at, spans, out)
                        return
                    values = self._map(relative, descriptor, values_at)
                finally:
                    os.close(descriptor)
        # One copy per span beats fancy indexing from about 100 tokens per span, and needs no index array. Between two
        # memoryviews it takes half as long as between arrays.
        target: Any = out.data if out.dtype == self._dtype else out
        for first, count, place in spans:
            target[place : place + count] = values[first : first + count]

    def _is_worth_mapping(self) -> bool:
        if len(self._mapped) < self._limit:
            return True
        self._misses += 1
        return self._misses % _REPLACE_EVERY == 0

    def _map(self, relative: str, descriptor: int, values_at: int) -> memoryview:
        whole = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        width = self._dtype.itemsize
        values = np.frombuffer(whole, self._dtype, (len(whole) - values_at) // width, values_at).data
        self._mapped[relative] = values
        if len(self._mapped) > self._limit:
            # A mapping stays open while a view still refers to it.
            self._mapped.popitem(last=False)
        return values

    def _read(self, descriptor: int, values_at: int, spans: list[Span], out: npt.NDArray[Any]) -> None:
        width = self._dtype.itemsize
        for first, count, place in spans:
            data = os.pread(descriptor, count * width, values_at + first * width)
            out[place : place + count] = np.frombuffer(data, self._dtype)

    def _open(self, relative: str, size: int) -> int:
        parent, _, name = relative.rpartition("/")
        if parent not in self._parents:
            # Resolving takes longer than reading a document, so it is done once for a folder.
            self._parents[parent] = str(safe_path(self._folder, parent) if parent else self._folder.resolve())
        if not name or name == ".." or "\0" in name:
            safe_path(self._folder, relative)
        path = f"{self._parents[parent]}/{name}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise damaged(Path(path), "is missing" if error.errno == errno.ENOENT else str(error)) from None
            descriptor = os.open(safe_path(self._folder, relative), os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(descriptor).st_size
        if found != size or os.pread(descriptor, len(_MAGIC), 0) != _MAGIC:
            os.close(descriptor)
            what = f"has {found} bytes, not {size}" if found != size else "is not an Arrow file"
            raise damaged(Path(path), what)
        return descriptor


def safe_path(folder: Path, relative: str) -> Path:
    """Return the path of a file that a manifest names, checked to lie inside the manifest's folder.

    Raises:
        UserError: if it is absolute, climbs with "..", or leads outside through a link.
    """
    pure = PurePosixPath(relative)
    root = folder.resolve()
    plain = bool(relative) and "\0" not in relative and not pure.is_absolute() and ".." not in pure.parts
    path = (root / pure).resolve() if plain else root
    if not plain or not path.is_relative_to(root):
        raise UserError(
            f"the manifest names {relative!r}, which is outside its folder",
            place=str(folder),
            remedy="Do not read these shards: their manifest was tampered with",
        )
    return path


def damaged(path: Path, what: str) -> IncompleteError:
    """Return the error of a shard that is not what was written."""
    return IncompleteError(
        f"the shard {path.name} {what}",
        place=str(path),
        remedy="Delete it and run the recipe again: only what is missing is written again",
    )
