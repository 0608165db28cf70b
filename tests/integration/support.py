"""How the runs under test are started and compared."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from pipelines.cli import main; main()"]

# What may differ between two runs of one recipe: when they ran, what they cost, and the lock of the driver.
VARYING = {"timings.json", "costs", ".lock", "seen.arrow"}


def headrace(*arguments: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own."""
    command = [*COMMAND, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def content(folder: Path) -> dict[str, str]:
    """Return sha256 by relative path of every file of a run that must not vary."""
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        str(name): hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if not VARYING & set(name.parts)
    }
