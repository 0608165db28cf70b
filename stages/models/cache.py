"""One lock-guarded cache of loaded models per process, keyed by loader and path.

Beam's ``Shared`` is per handle, so two stages with one model would hold it twice. Nothing loaded may enter a pickle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

M = TypeVar("M")

_lock = threading.RLock()
_loaded: dict[tuple[str, str], Any] = {}


def load_once(loader: Callable[[str], M], path: str) -> M:
    """Return what ``loader(path)`` gave the first time in this process."""
    key = (f"{loader.__module__}.{loader.__qualname__}", path)
    with _lock:
        if key not in _loaded:
            _loaded[key] = loader(path)
        return cast(M, _loaded[key])
