"""The final verdict on every record of a run: what the judges said, with the drop files laid over it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.passes.drops import SCHEMA as DROPS
from pipelines.passes.keys import split_names
from pipelines.tables import read_table
from pipelines.workspace import Run


def verdicts(run: Run) -> Iterator[pa.Table]:
    """Yield the verdict table of each split, in order: every record once, by doc_id.

    Columns: those of ``shards.schema.DOCUMENT`` without text and payload, one per score, ``content_hash``,
    ``text_bytes``, ``witness`` (doc_id of the kept document for which a duplicate was dropped) and ``jaccard``.
    """
    for split in split_names(run):
        judged = read_table(run.store, run.folder("judge").require(split).files["verdicts"])
        yield overlaid(judged, read_table(run.store, run.folder("drops").require(split).files["drops"]))


def overlaid(judged: pa.Table, drops: pa.Table) -> pa.Table:
    """Return ``judged`` with the marks of ``drops``, whose documents no judge had dropped."""
    place = pc.index_in(judged.column("doc_id"), value_set=drops.column("doc_id").combine_chunks())
    late = pc.is_valid(place)
    if int(np.asarray(late).sum()) != drops.num_rows:
        raise AssertionError("a drop file names a document that its split does not have")
    if judged.filter(late).column("dropped_by").null_count != drops.num_rows:
        raise AssertionError("a drop file names a document that a judge had dropped already")
    found = drops.take(place)
    for name in ("dropped_by", "reason", "value"):
        column = pc.if_else(late, found.column(name), judged.column(name))
        judged = judged.set_column(judged.schema.get_field_index(name), judged.schema.field(name), column)
    for name in ("witness", "jaccard"):
        judged = judged.append_column(DROPS.field(name), found.column(name))
    return judged
