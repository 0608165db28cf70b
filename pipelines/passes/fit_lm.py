"""*fit lm*: a KenLM model per language from reference text that the recipe names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.beam.base import Inputs, UnitPass
from pipelines.beam.work_list import Output, Unit
from pipelines.workspace import Job, Workspace
from shards.files import hash_file
from stages.lm import kneser_ney
from stages.lm.kneser_ney import ESTIMATOR
from stages.lm.normalise import SCHEME, lm_lines


def reference_lines(paths: Sequence[str]) -> Iterator[str]:
    """Yield the normalised lines of UTF-8 text files."""
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                yield from lm_lines(line)


def model_uris(workspace: Workspace, inputs: Inputs, models: Output | None) -> dict[str, str]:
    """Return where the models that this run fitted are, by language: a path, or a URI that any worker can fetch."""
    if models is None:
        return {}
    return {language: workspace.store.checked_uri(entry) for language, entry in inputs.files(models).items()}


@dataclass(frozen=True)
class FitLm(UnitPass):
    """One unit per language that has a corpus."""

    name: ClassVar[str] = "fit_lm"

    models: tuple[tuple[str, int, tuple[str, ...]], ...]
    """The language, order and reference files of each model."""

    def section(self) -> Any:
        """Return languages and orders, the text normalisation, and the content of the reference files."""
        return [
            [language, order, ESTIMATOR, SCHEME, [hash_file(Path(path))[0] for path in paths]]
            for language, order, paths in self.models
        ]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the languages."""
        return [language for language, _, _ in self.models]

    def work(self, job: Job, unit: Unit) -> None:
        """Fit one language's model and publish its ARPA file."""
        order, paths = next((order, paths) for language, order, paths in self.models if language == unit.name)
        model = kneser_ney.fit(reference_lines(paths), order)
        with job.store.scratch() as scratch:
            path = scratch / f"{os.path.basename(unit.name)}.arpa"
            model.write_arpa(path)
            entry = job.store.publish(path, "fit_lm/models", unit.name, 1)
        statistics = {"order": model.order, "fallback_orders": list(model.fallback_orders), "files": len(paths)}
        job.commit(unit.name, {"model": entry}, statistics)
