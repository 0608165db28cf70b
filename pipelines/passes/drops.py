"""*drops*: one drop file per split, of everything that was decided after judging: late limits, and duplicates.

An empty list is a file too; a missing file is an error, never 'nothing dropped'. The write pass and every report read
the judge's verdicts with this laid over them. The fates of all records are counted here, once, and their scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.base import Inputs, UnitPass
from pipelines.beam.work_list import Output, Unit
from pipelines.chain import EXACT_DEDUP, EXACT_DUPLICATE, NEAR_DEDUP, NEAR_DUPLICATE
from pipelines.late import score_columns
from pipelines.passes import characters
from pipelines.passes.duplicates import DUPLICATE
from pipelines.passes.near import CLUSTER
from pipelines.passes.score_counts import count_scores
from pipelines.passes.shuffle import SplitGroups, rows_of
from pipelines.planning.labels import Labelling
from pipelines.tables import group_counts, is_in, publish_table, read_schema, read_table
from pipelines.workspace import Job
from shards.store import Store
from stages.base import Stage, link_of

SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.int64(), nullable=False),
        pa.field("dropped_by", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("detail", pa.string()),
        pa.field("witness", pa.int64()),
        pa.field("jaccard", pa.float64()),
    ]
)
_CLUSTERS = pa.schema([("doc_id", pa.int64()), ("cluster_hash", pa.binary(16))])


_OF_DUPLICATES: Final = ["witness", "jaccard"]
FATE: Final = ("dropped_by", "reason", "failed", "language", "domain")
"""What became of a record, and what it was: the columns by which the table ``counts`` counts records."""
_COLUMNS: Final = ("doc_id", "source_index", "host", "language", "dropped_by", "reason", "failed", "text_bytes")


@dataclass(frozen=True)
class Drops(UnitPass):
    """One unit per split: its drop file, the clusters of its survivors, and counts of its records."""

    name: ClassVar[str] = "drops"
    version: ClassVar[int] = 4

    verdicts: Output
    late: Output | None
    duplicates: Output | None
    clusters: Output | None
    splits: SplitGroups
    """The splits in groups, by which duplicates come."""
    labels: Labelling
    """The domains, which are joined from the plan."""
    chain: tuple[Stage, ...]
    """The stages, whose scores are counted."""

    def section(self) -> Any:
        """Return the labels, and what of the chain the counts of scores depend on: limits are not part of it."""
        scores = [[link_of(stage), [[one.name, one.scale] for one in stage.scores]] for stage in self.chain]
        checks = [[[one.score, one.reason] for one in stage.checks] for stage in self.chain]
        return [self.labels.digest, scores, checks, self.splits.digest]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the splits."""
        return list(inputs.units(self.verdicts))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the splits, each with the files of its group of splits."""
        grouped = {output: inputs.files(output) for output in (self.duplicates, self.clusters) if output is not None}
        group_of = {split: group for group in self.splits.groups for split in group.splits}
        for name in pending:
            group = group_of[name]
            found = {output: (files[group.name],) for output, files in grouped.items()}
            detail = {"sources": inputs.sources(name), "block": group.splits.index(name)}
            yield Unit(name, {**inputs.of_unit(name), **found}, detail)

    def work(self, job: Job, unit: Unit) -> None:
        """Gather a split's late drops, and count all its records."""
        edited = characters.edit_columns(read_schema(job.store, unit.file(self.verdicts)).names)
        wanted = dict.fromkeys([*_COLUMNS, *score_columns(self.chain), *edited])
        judged = read_table(job.store, unit.file(self.verdicts), wanted)
        late = SCHEMA.empty_table()
        if self.late is not None:
            late = late_drops(read_table(job.store, unit.file(self.late)))
            # Early limits that were tightened since may drop what a later stage had dropped.
            judged = overlaid(judged, late).drop_columns(_OF_DUPLICATES)
        kept = judged.filter(pc.is_null(judged.column("dropped_by")))
        ids = kept.column("doc_id").to_numpy()
        found = self._duplicates(job.store, unit)
        table = pa.concat_tables([late, *found])
        table = table.sort_by("doc_id")
        dropped = table.column("doc_id").to_numpy()
        if len(np.unique(dropped)) != len(dropped):
            raise AssertionError(f"a document of split {unit.name} is dropped twice")
        left = kept.filter(pa.array(~is_in(ids, dropped)))
        files = {
            "drops": publish_table(job.store, table, "drops/drops", unit.name),
            "clusters": publish_table(job.store, self._clusters(job.store, unit), "drops/clusters", unit.name),
        }
        statistics = {
            "survivors": left.num_rows,
            "survivor_bytes": int(left.column("text_bytes").to_numpy().sum()),
        }
        judged = overlaid(judged, pa.concat_tables(found).sort_by("doc_id"))
        fates = self.labels.labels(unit.detail["sources"]).join(judged, ["domain"])
        counts = group_counts(fates.select(list(FATE)), list(FATE))
        tables = {"counts": counts, "scores": count_scores(judged, self.chain)}
        if edited:
            tables["characters"] = characters.of_scores(fates, [link_of(stage) for stage in self.chain])
        job.commit(unit.name, files, statistics, tables)

    def _clusters(self, store: Store, unit: Unit) -> pa.Table:
        """Return the survivors of the split that others were removed for, with the hashes of their clusters."""
        if self.clusters is None:
            return _CLUSTERS.empty_table()
        members = rows_of(store, unit.files(self.clusters), unit.detail["block"], CLUSTER)
        hashes = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), len(members), [None, pa.py_buffer(np.ascontiguousarray(members["cluster"]).tobytes())]
        )
        return pa.table([pa.array(np.ascontiguousarray(members["doc_id"])), hashes], schema=_CLUSTERS)

    def _duplicates(self, store: Store, unit: Unit) -> list[pa.Table]:
        """Return the exact and near drops of the split, each with a witness that is kept in the end."""
        if self.duplicates is None:
            return [SCHEMA.empty_table()]
        found = rows_of(store, unit.files(self.duplicates), unit.detail["block"], DUPLICATE)
        exact, near = found[~found["is_near"]], found[found["is_near"]]
        return [
            _duplicate_rows(exact["doc_id"], EXACT_DEDUP, EXACT_DUPLICATE, exact["witness"], exact["jaccard"]),
            _duplicate_rows(near["doc_id"], NEAR_DEDUP, NEAR_DUPLICATE, near["witness"], near["jaccard"]),
        ]


def late_drops(marks: pa.Table) -> pa.Table:
    """Return marks as rows of a drop file, which have no witness."""
    for name in _OF_DUPLICATES:
        marks = marks.append_column(SCHEMA.field(name), pa.nulls(marks.num_rows, SCHEMA.field(name).type))
    return marks.select(SCHEMA.names).cast(SCHEMA)


def _duplicate_rows(ids: Any, stage: str, reason: str, witness: Any, jaccard: Any) -> pa.Table:
    names = [pa.array([name] * len(ids), pa.string()) for name in (stage, reason)]
    value, near, kept = (pa.array(np.ascontiguousarray(column)) for column in (jaccard, jaccard, witness))
    nothing = pa.nulls(len(ids), pa.string())
    return pa.table([pa.array(np.ascontiguousarray(ids)), *names, value, nothing, kept, near], schema=SCHEMA)


def overlaid(judged: pa.Table, drops: pa.Table) -> pa.Table:
    """Return ``judged`` with the marks of ``drops``, rows of a drop file of the same split."""
    place = pc.index_in(judged.column("doc_id"), value_set=drops.column("doc_id").combine_chunks())
    late = pc.is_valid(place)
    if int(np.asarray(late).sum()) != drops.num_rows:
        raise AssertionError("a drop file names a document that its split does not have")
    found = drops.take(place)
    for name in ("dropped_by", "reason", "value", "detail", "failed"):
        if name not in judged.column_names:
            continue
        # Only a document that was edited can fail this late; one that failed may be dropped before, by a tighter limit.
        own = found.column(name) if name in drops.column_names else pa.scalar(value=False)
        column = pc.if_else(late, own, judged.column(name))
        judged = judged.set_column(judged.schema.get_field_index(name), judged.schema.field(name), column)
    for name in _OF_DUPLICATES:
        judged = judged.append_column(SCHEMA.field(name), found.column(name))
    return judged
