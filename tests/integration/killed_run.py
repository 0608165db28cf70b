"""A run that kills itself with SIGKILL at one commit of one pass: python killed_run.py RECIPE OUT LOG PASS AFTER.

Every marker that is written is noted in LOG, so that a test can tell whether a restart repeated finished work. With
AFTER=0 the kill falls between a unit's files and its marker, with AFTER=1 behind the marker.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pipelines.beam.runners import LocalRunner
from pipelines.driver import check, curate, locked
from pipelines.passes.build import KINDS
from pipelines.recipe import load_recipe
from pipelines.workspace import Workspace
from shards.manifest import PassFolder
from shards.marker import Marker
from tests.pipelines.support import Silent


def main() -> None:
    """Run the recipe in this process, with the deadly commit in place."""
    recipe, out, log, target, after = sys.argv[1:]
    original, units = PassFolder.commit, dict[str, list[str]]()
    count = 0

    def commit(self: PassFolder, marker: Marker) -> None:
        nonlocal count
        count += self.name == target
        # The second unit where there are several: then the first is finished, and must not be repeated.
        deadly = self.name == target and count == min(2, len(units[target]))
        if deadly and after == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, marker)
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{self.name} {marker.unit}\n")
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    for kind in KINDS:

        def remembered(work: Any, inputs: Any, found: Any = kind.units) -> list[str]:
            units[work.name] = found(work, inputs)
            return units[work.name]

        kind.units = remembered  # type: ignore[method-assign]
    PassFolder.commit = commit  # type: ignore[method-assign]
    workspace = Workspace.of(out, load_recipe(recipe), str(Path(recipe).parent))
    plan = check(workspace)
    with locked(workspace), LocalRunner(1) as runner:
        curate(workspace, plan, runner, Silent())


if __name__ == "__main__":
    main()
