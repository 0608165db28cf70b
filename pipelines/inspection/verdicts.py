"""The final verdict on every record of a run: what the judges said, with the drop files laid over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.chain import TOKENIZER
from pipelines.passes.drops import overlaid
from pipelines.passes.write import FAILURES
from pipelines.run import Run
from pipelines.tables import read_table
from pipelines.view import EDITS_PASS, drop_files


def verdicts(run: Run, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the verdict table of each split, in order: every record once, by doc_id.

    Columns: those of ``shards.schema.DOCUMENT`` without text and payload, one per score, ``content_hash``,
    ``text_bytes`` as judged, ``witness`` (doc_id of the kept document for which a duplicate was dropped), ``jaccard``.

    Args:
        run: a run that has every verdict.
        columns: those of the judges' tables that are wanted, ``doc_id``, ``source_index`` and ``host`` among them; None
            for all.
    """
    drops, failed = drop_files(run), failures(run)
    scores = run.files(EDITS_PASS, "scores") if run.has(EDITS_PASS) else {}
    for split, judged in run.files("judge", "verdicts").items():
        table = overlaid(read_table(run.store, judged, columns), read_table(run.store, drops[split]))
        if split in scores:
            table = _with_scores(table, read_table(run.store, scores[split], columns))
        table = run.labels.join(table, ["domain", "licence"])
        yield _with_failures(table, failed) if failed.num_rows else table


def failures(run: Run) -> pa.Table:
    """Return the documents that could not be tokenised: doc_id, reason, detail, language, domain."""
    return run.manifest("write").table("failures") if run.has("write") else FAILURES.empty_table()


def _with_scores(verdicts: pa.Table, scores: pa.Table) -> pa.Table:
    """Return verdicts with the scores that documents were given after deduplication; null for all others."""
    place = pc.index_in(verdicts.column("doc_id"), value_set=scores.column("doc_id").combine_chunks())
    for name in scores.column_names:
        if name == "doc_id":
            continue
        verdicts = verdicts.append_column(scores.schema.field(name), scores.column(name).take(place))
    return verdicts


def _with_failures(verdicts: pa.Table, failed: pa.Table) -> pa.Table:
    place = pc.index_in(verdicts.column("doc_id"), value_set=failed.column("doc_id").combine_chunks())
    late = pc.is_valid(place)
    marks = {"dropped_by": pa.scalar(TOKENIZER), "reason": failed.column("reason").take(place), "failed": True}
    for name, mark in (marks | {"detail": failed.column("detail").take(place)}).items():
        if name not in verdicts.column_names:
            continue
        column = pc.if_else(late, mark, verdicts.column(name))
        verdicts = verdicts.set_column(verdicts.schema.get_field_index(name), verdicts.schema.field(name), column)
    return verdicts
