"""What tests of every room share."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_finish() -> None:
    """Hide from the garbage collector what imports made, and call it less: it took a tenth of the unit tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Wait for no disk: no machine loses power here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def prism() -> str:
    """The Prism binary, a real Beam runner in Go."""
    candidates = [os.environ.get("HEADRACE_PRISM"), shutil.which("prism"), str(Path.home() / "go" / "bin" / "prism")]
    found = next((path for path in candidates if path and os.access(path, os.X_OK)), None)
    if found is None:
        pytest.skip("needs Prism: go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0, or HEADRACE_PRISM")
    return found
