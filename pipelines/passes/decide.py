"""*decide*: turns the merged score histograms of all splits into percentile cuts, per language.

Scores were rounded before they were counted, so the cuts are exact over the whole run and independent of its splits.
The documents themselves are not judged again: whoever reads keys or documents later asks ``cut_mask``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.base import DriverPass
from pipelines.chain import PERPLEXITY
from pipelines.workspace import Run
from stages.judges.perplexity import percentile_cuts

Cuts = Mapping[str, tuple[float | None, float | None]]
"""Per language: the least and the greatest perplexity that stays; None for an open end."""

TOO_PLAIN = "too_plain"
TOO_CHAOTIC = "too_chaotic"


class Decide(DriverPass):
    """Percentile cuts of perplexity."""

    name = "decide"
    upstream = ("judge",)

    def section(self, run: Run) -> Any:
        """The percentiles asked for."""
        return percentiles(run)

    def work(self, run: Run) -> None:
        """Merge the histograms and cut."""
        low, high = percentiles(run)
        merged: dict[str, dict[int, int]] = {}
        for unit in run.manifest("judge")["units"]:
            for language, histogram in unit["statistics"]["perplexity"].items():
                into = merged.setdefault(language, {})
                for value, count in histogram.items():
                    into[int(value)] = into.get(int(value), 0) + count
        cuts: dict[str, list[float | None]] = {}
        if low is not None or high is not None:
            for language in sorted(merged):
                bounds = percentile_cuts(merged[language], low or 0.0, 100.0 if high is None else high)
                cuts[language] = [bounds[0] if low is not None else None, bounds[1] if high is not None else None]
        run.commit(self.name, self.UNIT, {}, {"perplexity": cuts})


def percentiles(run: Run) -> tuple[float | None, float | None]:
    """Return the (low, high) percentiles that the recipe sets for perplexity, None where it sets none."""
    for use in run.recipe.stages:
        if use.use == PERPLEXITY:
            return use.parameters.get("low_percentile"), use.parameters.get("high_percentile")
    return None, None


def cuts_of(run: Run) -> Cuts:
    """Return the cuts of a run whose *decide* is finished."""
    found = run.folder("decide").require(DriverPass.UNIT).statistics["perplexity"]
    return {language: (bounds[0], bounds[1]) for language, bounds in found.items()}


def cut_mask(table: pa.Table, cuts: Cuts) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return masks (too plain, too chaotic), each of shape (rows,), of a table with ``language`` and ``perplexity``."""
    plain = np.zeros(table.num_rows, np.bool_)
    chaotic = np.zeros(table.num_rows, np.bool_)
    if not cuts or "perplexity" not in table.column_names:
        return plain, chaotic
    score = table.column("perplexity").to_numpy(zero_copy_only=False)
    for language, (low, high) in cuts.items():
        mine = pc.equal(table.column("language"), language).to_numpy(zero_copy_only=False)
        if low is not None:
            plain |= mine & (score < low)
        if high is not None:
            chaotic |= mine & (score > high)
    return plain, chaotic
