"""A run that kills itself with SIGKILL at one commit of one pass: python killed_run.py RECIPE OUT LOG PASS AFTER.

Every marker that is written is noted in LOG, so that a test can tell whether a restart repeated finished work. With
AFTER=0 the kill falls between a unit's files and its marker, with AFTER=1 behind the marker.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.beam.runners import make_runner
from pipelines.driver import check, curate, locked
from pipelines.progress import Silent
from pipelines.recipe import load_recipe
from pipelines.workspace import Workspace
from shards.manifest import PassFolder
from shards.store import FileEntry


def main() -> None:
    """Run the recipe in this process, with the deadly commit in place."""
    recipe, out, log, target, after = sys.argv[1:]
    original = PassFolder.commit
    count = 0

    def commit(self: PassFolder, unit: str, files: Mapping[str, FileEntry], statistics: Mapping[str, Any]) -> None:
        nonlocal count
        count += self.name == target
        # The second unit where there are several: then the first is finished, and must not be repeated.
        deadly = self.name == target and count == min(2, len(_units(out, target)))
        if deadly and after == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, unit, files, statistics)
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{self.name} {unit}\n")
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    units: dict[str, list[str]] = {}

    def _units(out: str, name: str) -> list[str]:
        return units[name]

    from pipelines import driver

    for work in driver.PASSES:
        found = work.units

        def remembered(run: Any, name: str = work.name, found: Any = found) -> list[str]:
            units[name] = found(run)
            return units[name]

        work.units = remembered  # type: ignore[method-assign]
    PassFolder.commit = commit  # type: ignore[method-assign]
    workspace = Workspace.of(out, load_recipe(recipe), str(Path(recipe).parent))
    plan = check(workspace)
    with locked(workspace), make_runner(1, None) as runner:
        curate(workspace, plan, runner, Silent())


if __name__ == "__main__":
    main()
