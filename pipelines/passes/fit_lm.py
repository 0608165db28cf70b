"""*fit lm*: a KenLM model per language from reference text that the recipe names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.beam.base import UnitPass
from pipelines.chain import fitted_languages
from pipelines.workspace import Run, Workspace
from shards.errors import UserError
from shards.store import hash_file
from stages.lm import kneser_ney
from stages.lm.kneser_ney import ESTIMATOR
from stages.lm.normalise import SCHEME, lm_lines


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
                remedy="Mend the pattern, or name a model file with 'model' instead of 'corpus'",
            )
        found += matches
    return sorted(set(found))


def reference_lines(paths: list[str]) -> Iterator[str]:
    """Yield the normalised lines of UTF-8 text files."""
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                yield from lm_lines(line)


class FitLm(UnitPass):
    """One unit per language with a corpus."""

    name = "fit_lm"

    def section(self, run: Run) -> Any:
        """Orders, the text normalisation, and the content of the reference files."""
        section = []
        for position, lm in enumerate(run.recipe.lm):
            if lm.corpus:
                files = reference_files(run.workspace, lm.corpus, f"recipe, key lm.{position}.corpus")
                section.append([lm.language, lm.order, ESTIMATOR, SCHEME, [hash_file(Path(path))[0] for path in files]])
        return section

    def units(self, run: Run) -> list[str]:
        """The languages whose model this run fits."""
        return [lm.language for lm in fitted_languages(run.recipe)]

    def work(self, run: Run, unit: str) -> None:
        """Fit one language's model and publish its ARPA file."""
        lm = next(lm for lm in fitted_languages(run.recipe) if lm.language == unit)
        paths = reference_files(run.workspace, lm.corpus, f"recipe, key lm ({unit})")
        model = kneser_ney.fit(reference_lines(paths), lm.order)
        with run.store.scratch() as scratch:
            path = scratch / f"{os.path.basename(unit)}.arpa"
            model.write_arpa(path)
            entry = run.store.publish(path, "fit_lm/models", unit, 1)
        run.commit(
            self.name,
            unit,
            {"model": entry},
            {"order": model.order, "fallback_orders": list(model.fallback_orders), "files": len(paths)},
        )
