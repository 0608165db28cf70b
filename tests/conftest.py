"""What tests of every room share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def prism() -> str:
    """The Prism binary, a real Beam runner in Go."""
    candidates = [os.environ.get("HEADRACE_PRISM"), shutil.which("prism"), str(Path.home() / "go" / "bin" / "prism")]
    found = next((path for path in candidates if path and os.access(path, os.X_OK)), None)
    if found is None:
        pytest.skip("needs Prism: go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0, or HEADRACE_PRISM")
    return found
