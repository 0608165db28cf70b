"""The final verdict on every record of a run: what the judges said, with the drop files laid over it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.chain import TOKENIZER
from pipelines.passes.drops import overlaid
from pipelines.passes.write import FAILURES
from pipelines.run import Run
from pipelines.tables import read_table


def verdicts(run: Run) -> Iterator[pa.Table]:
    """Yield the verdict table of each split, in order: every record once, by doc_id.

    Columns: those of ``shards.schema.DOCUMENT`` without text and payload, one per score, ``content_hash``,
    ``text_bytes``, ``witness`` (doc_id of the kept document for which a duplicate was dropped) and ``jaccard``.
    """
    drops, failed = run.files("drops", "drops"), failures(run)
    for split, judged in run.files("judge", "verdicts").items():
        table = overlaid(read_table(run.store, judged), read_table(run.store, drops[split]))
        table = run.labels.join(table, ["domain", "licence"])
        yield _with_failures(table, failed) if failed.num_rows else table


def failures(run: Run) -> pa.Table:
    """Return the documents that could not be tokenised: doc_id, reason, detail, language, domain."""
    return run.manifest("write").table("failures") if run.has("write") else FAILURES.empty_table()


def _with_failures(verdicts: pa.Table, failed: pa.Table) -> pa.Table:
    place = pc.index_in(verdicts.column("doc_id"), value_set=failed.column("doc_id").combine_chunks())
    late = pc.is_valid(place)
    marks = {"dropped_by": pa.scalar(TOKENIZER), "reason": failed.column("reason").take(place), "failed": True}
    for name, mark in (marks | {"detail": failed.column("detail").take(place)}).items():
        column = pc.if_else(late, mark, verdicts.column(name))
        verdicts = verdicts.set_column(verdicts.schema.get_field_index(name), verdicts.schema.field(name), column)
    return verdicts
