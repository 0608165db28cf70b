"""*drops*: one drop file per split, of everything that was decided after judging: cuts, exact and near duplicates.

An empty list is a file too; a missing file is an error, never 'nothing dropped'. The write pass and every report read
the judge's verdicts with this laid over them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam.base import DriverPass, UnitPass
from pipelines.chain import EXACT_DEDUP, EXACT_DUPLICATE, NEAR_DEDUP, NEAR_DUPLICATE, PERPLEXITY
from pipelines.passes.decide import TOO_CHAOTIC, TOO_PLAIN, cut_mask, cuts_of
from pipelines.passes.exact import exact_drops_of
from pipelines.passes.keys import is_in, split_names
from pipelines.tables import group_counts, publish_table, read_table, structured
from pipelines.workspace import Run
from stages.dedup.near import REMOVAL

SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.int64(), nullable=False),
        pa.field("dropped_by", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("witness", pa.int64()),
        pa.field("jaccard", pa.float64()),
    ]
)


class Drops(UnitPass):
    """One unit per split: its drop file, and the clusters of its survivors."""

    name = "drops"
    upstream = ("judge", "decide", "exact", "near")

    def section(self, run: Run) -> Any:
        """Nothing beyond its upstream."""
        return []

    def units(self, run: Run) -> list[str]:
        """The splits."""
        return split_names(run)

    def work(self, run: Run, unit: str) -> None:
        """Gather a split's late drops."""
        entry = run.folder("judge").require(unit).files["keys"]
        keys = read_table(run.store, entry, ["doc_id", "language", "domain", "perplexity", "text_bytes"])
        ids = keys.column("doc_id").to_numpy()
        table = pa.concat_tables([_cut(run, keys), *_duplicates(run, ids)]).sort_by("doc_id")
        dropped = table.column("doc_id").to_numpy()
        if len(np.unique(dropped)) != len(dropped):
            raise AssertionError(f"a document of split {unit} is dropped twice")
        left = keys.filter(pa.array(~is_in(ids, dropped)))
        lost = keys.filter(pa.array(is_in(ids, dropped)))
        counted = lost.append_column("dropped_by", table.column("dropped_by"))
        counted = counted.append_column("reason", table.column("reason"))
        _, clusters = _near(run)
        member = pa.array(is_in(clusters.column("doc_id").to_numpy(), left.column("doc_id").to_numpy()))
        files = {
            "drops": publish_table(run.store, table, "drops/drops", unit),
            "clusters": publish_table(run.store, clusters.filter(member), "drops/clusters", unit),
        }
        statistics = {
            "counts": group_counts(counted, ["dropped_by", "reason", "language", "domain"]),
            "survivors": left.num_rows,
            "survivor_bytes": int(left.column("text_bytes").to_numpy().sum()),
        }
        run.commit(self.name, unit, files, statistics)


def _cut(run: Run, keys: pa.Table) -> pa.Table:
    plain, chaotic = cut_mask(keys, cuts_of(run))
    parts = [_rows(keys, mask, PERPLEXITY, reason) for mask, reason in ((plain, TOO_PLAIN), (chaotic, TOO_CHAOTIC))]
    return pa.concat_tables(parts)


def _rows(keys: pa.Table, mask: npt.NDArray[np.bool_], stage: str, reason: str) -> pa.Table:
    hit = keys.filter(pa.array(mask))
    rows = hit.num_rows
    value = hit.column("perplexity") if "perplexity" in hit.column_names else pa.nulls(rows, pa.float64())
    names = [pa.array([name] * rows, pa.string()) for name in (stage, reason)]
    nothing = [pa.nulls(rows, pa.int64()), pa.nulls(rows, pa.float64())]
    return pa.table([hit.column("doc_id"), *names, value, *nothing], schema=SCHEMA)


def _duplicates(run: Run, ids: npt.NDArray[np.int64]) -> list[pa.Table]:
    """Return the exact and near drops among ``ids``, each with a witness that is kept in the end."""
    removed, _ = _near(run)
    exact = exact_drops_of(run)
    mine = exact[is_in(exact["doc_id"], ids)]
    witness, jaccard = mine["witness"].copy(), np.ones(len(mine))
    # A survivor of equal content may itself be a near-duplicate: its witness is then as close to all of its copies.
    moved = is_in(witness, removed["doc_id"])
    place = np.searchsorted(removed["doc_id"], witness[moved])
    witness[moved], jaccard[moved] = removed["witness"][place], removed["jaccard"][place]
    near = removed[is_in(removed["doc_id"], ids)]
    return [
        _duplicate_rows(mine["doc_id"], EXACT_DEDUP, EXACT_DUPLICATE, witness, jaccard),
        _duplicate_rows(near["doc_id"], NEAR_DEDUP, NEAR_DUPLICATE, near["witness"], near["jaccard"]),
    ]


def _duplicate_rows(ids: Any, stage: str, reason: str, witness: Any, jaccard: Any) -> pa.Table:
    names = [pa.array([name] * len(ids), pa.string()) for name in (stage, reason)]
    numbers = [pa.array(np.ascontiguousarray(column)) for column in (jaccard, witness, jaccard)]
    return pa.table([pa.array(np.ascontiguousarray(ids)), *names, *numbers], schema=SCHEMA)


@functools.lru_cache(maxsize=1)
def _near(run: Run) -> tuple[npt.NDArray[Any], pa.Table]:
    """Return (removed, clusters) of the whole run, loaded once per process and run."""
    files = run.folder("near").require(DriverPass.UNIT).files
    return structured(read_table(run.store, files["removed"]), REMOVAL), read_table(run.store, files["clusters"])
