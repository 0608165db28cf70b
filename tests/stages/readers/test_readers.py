"""The readers' face: what importing it brings along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_importing_a_reader_imports_no_compiler() -> None:
    code = "import sys, stages.readers; print([m for m in ('numba', 'llvmlite', 'apache_beam') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"
