"""The files of reference text that a recipe names."""

from __future__ import annotations

import glob
import os

from pipelines.workspace import Workspace
from shards.errors import UserError


def reference_files(workspace: Workspace, corpus: tuple[str, ...], place: str) -> list[str]:
    """Return the files of a reference corpus, sorted.

    Raises:
        UserError: if a glob matches nothing.
    """
    found: list[str] = []
    for pattern in corpus:
        matches = [path for path in glob.glob(workspace.input_path(pattern), recursive=True) if os.path.isfile(path)]
        if not matches:
            raise UserError(
                f"the reference text {pattern!r} matches no file",
                place=f"{place}, looked in {workspace.base}",
                remedy="Fix the pattern, or name a model file with 'model' instead of 'corpus'",
            )
        found += matches
    return sorted(set(found))
