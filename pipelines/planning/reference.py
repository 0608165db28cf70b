"""The files of reference text that a recipe names."""

from __future__ import annotations

import glob
import os

from pipelines.workspace import Workspace
from shards.errors import UserError


def reference_files(workspace: Workspace, corpus: tuple[str, ...], place: str, otherwise: str = "") -> list[str]:
    """Return the files of a reference corpus, sorted.

    Args:
        workspace: the recipe's.
        corpus: globs.
        place: where the recipe names them.
        otherwise: what could be named instead, for the remedy.

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
                remedy=f"Fix the pattern{otherwise}",
            )
        found += matches
    return sorted(set(found))
