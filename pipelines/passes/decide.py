"""*decide*: turns the merged score histograms of all splits into percentile cuts, per language.

Scores were rounded before they were counted, so the cuts are exact over the whole run and independent of its splits.
The documents themselves are not judged again: whoever reads keys or documents later asks ``cut_mask``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.base import ALL, DriverPass, Inputs
from pipelines.beam.work_list import Output, Unit
from pipelines.tables import publish_table, read_table
from pipelines.workspace import Job
from shards.store import FileEntry, Store
from stages.judges.perplexity import percentile_cuts

Cuts = Mapping[str, tuple[float | None, float | None]]
"""Per language: the least and the greatest perplexity that stays; None for an open end."""

TOO_PLAIN = "too_plain"
TOO_CHAOTIC = "too_chaotic"

CUTS: Final = pa.schema([("language", pa.string()), ("low", pa.float64()), ("high", pa.float64())])


@dataclass(frozen=True)
class Decide(DriverPass):
    """Percentile cuts of perplexity.

    Attributes:
        histograms: perplexities counted by split and language.
        low_percentile: of each language, drop what is below; None for nothing.
        high_percentile: of each language, drop what is above; None for nothing.
    """

    name: ClassVar[str] = "decide"

    histograms: Output
    low_percentile: float | None
    high_percentile: float | None

    def work(self, job: Job, inputs: Inputs) -> None:
        """Merge the histograms and cut."""
        counted = inputs.table(self.histograms).group_by(["language", "bin"]).aggregate([("documents", "sum")])
        merged: dict[str, dict[int, int]] = {}
        for row in counted.to_pylist():
            merged.setdefault(row["language"], {})[row["bin"]] = row["documents_sum"]
        low, high = self.low_percentile, self.high_percentile
        rows = []
        for language in sorted(merged):
            bounds = percentile_cuts(merged[language], low or 0.0, 100.0 if high is None else high)
            ends = (bounds[0] if low is not None else None, bounds[1] if high is not None else None)
            rows.append({"language": language, "low": ends[0], "high": ends[1]})
        entry = publish_table(job.store, pa.Table.from_pylist(rows, CUTS), self.name, "cuts")
        job.commit(ALL, {"cuts": entry})


@functools.lru_cache(maxsize=1)
def _cuts(root: str, entry: FileEntry) -> Cuts:
    rows = read_table(Store(root, repairs=True), entry).to_pylist()
    return {row["language"]: (row["low"], row["high"]) for row in rows}


def cuts_in(store: Store, unit: Unit, cuts: Output | None) -> Cuts:
    """Return the cuts that a unit is to respect, opened once per process; none where the recipe sets none."""
    return _cuts(store.root, unit.file(cuts)) if cuts is not None else {}


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
