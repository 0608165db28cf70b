from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import numba.core.config
import pytest

import stages

_MODULES = ("names", "lexer", "stack", "tree", "nesting")


@pytest.fixture(scope="session")
def interpreted() -> SimpleNamespace:
    """The modules of the guard as plain Python: a test can call what is inside the kernel, and count its work."""
    compiled = {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith("stages.html.")}
    package = getattr(stages, "html", None)
    before, numba.core.config.DISABLE_JIT = numba.core.config.DISABLE_JIT, 1
    try:
        found = SimpleNamespace(**{name: importlib.import_module(f"stages.html.{name}") for name in _MODULES})
    finally:
        numba.core.config.DISABLE_JIT = before
        for name in [name for name in sys.modules if f"{name}.".startswith("stages.html.")]:
            del sys.modules[name]
        sys.modules.update(compiled)
        if package is not None:
            stages.html = package  # type: ignore[attr-defined]
    return found
