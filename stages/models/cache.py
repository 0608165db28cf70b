"""One lock-guarded cache of loaded models per process, keyed by loader and path, and bounded in bytes.

A model is loaded when a row first needs it. Where the models in use do not fit together, the one used longest ago is
let go, so stages group their rows by model. Beam's ``Shared`` is per handle, so two stages with one model would hold it
twice. Nothing loaded may enter a pickle.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from shards.errors import UserError
from shards.files import fetch

M = TypeVar("M")

VARIABLE: Final = "HEADRACE_MODEL_BYTES"
DEFAULT_BYTES: Final = 8 << 30


@dataclass
class ModelCache:
    """Loaded models of a process.

    Attributes:
        most_bytes: what all of them may take together; one is always held, however large.
    """

    most_bytes: int
    _held: OrderedDict[tuple[str, str], tuple[Any, int]] = field(default_factory=OrderedDict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def load(self, loader: Callable[[str], M], path: str, size: Callable[[], int] | None = None) -> M:
        """Return what ``loader(path)`` gives, from memory where it is held.

        Args:
            loader: a function of a module, which is part of the key.
            path: what it is given.
            size: returns the bytes of memory that it takes; by default those of the file at ``path``, a path or a URI,
                0 for none.
        """
        key = (f"{loader.__module__}.{loader.__qualname__}", path)
        with self._lock:
            if key not in self._held:
                needed = _file_bytes(path) if size is None else size()
                # Before the model is loaded, so that both are never held.
                self._make_room(needed)
                self._held[key] = (loader(path), needed)
            self._held.move_to_end(key)
            return cast(M, self._held[key][0])

    def held(self) -> list[str]:
        """Return the paths of the models that are held, the one used longest ago first."""
        with self._lock:
            return [path for _, path in self._held]

    def _make_room(self, needed: int) -> None:
        while self._held and sum(size for _, size in self._held.values()) + needed > self.most_bytes:
            self._held.popitem(last=False)


def _file_bytes(path: str) -> int:
    local = fetch(path)
    return local.stat().st_size if local.is_file() else 0


def _limit() -> int:
    said = os.environ.get(VARIABLE, "")
    if not said:
        return DEFAULT_BYTES
    if not said.isdecimal() or not int(said):
        raise UserError(f"{VARIABLE}={said} is not a number of bytes", remedy="Write, for example, 8000000000")
    return int(said)


_cache: list[ModelCache] = []


def models() -> ModelCache:
    """Return this process's cache. ``HEADRACE_MODEL_BYTES`` bounds it; by default 8 GiB.

    Raises:
        UserError: if the variable is not a number.
    """
    if not _cache:
        _cache.append(ModelCache(_limit()))
    return _cache[0]


def load_once(loader: Callable[[str], M], path: str, size: Callable[[], int] | None = None) -> M:
    """Return what ``loader(path)`` gives: see :meth:`ModelCache.load`."""
    return models().load(loader, path, size)
