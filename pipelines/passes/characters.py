"""Characters that edits removed and inserted, summed by stage and reason, and by what the documents were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.edits import INSERTED, REMOVED

CHARACTERS: Final = pa.schema(
    [
        ("edited_by", pa.string()),
        ("reason", pa.string()),
        ("language", pa.string()),
        ("domain", pa.string()),
        ("documents", pa.int64()),
        ("removed_chars", pa.int64()),
        ("inserted_chars", pa.int64()),
    ]
)
"""One row for each group that has any: how many documents were edited, and the characters removed and inserted."""

_KEYS: Final = CHARACTERS.names[:4]
SUMS: Final = CHARACTERS.names[4:]


def summed(parts: Iterable[pa.Table]) -> pa.Table:
    """Return the sums of tables in the schema ``CHARACTERS``, sorted by group."""
    table = pa.concat_tables([CHARACTERS.empty_table(), *parts])
    found = table.group_by(_KEYS).aggregate([(name, "sum") for name in SUMS])
    found = found.rename_columns({f"{name}_sum": name for name in SUMS}).select(CHARACTERS.names).cast(CHARACTERS)
    return found.sort_by([(name, "ascending") for name in _KEYS])


def of_edits(edits: pa.Table) -> pa.Table:
    """Return the sums of edits, one a row: ``doc_id``, the keys of a group, and the characters of each."""
    by_document = edits.group_by(["doc_id", *_KEYS]).aggregate([(name, "sum") for name in SUMS[1:]])
    counts = by_document.rename_columns({f"{name}_sum": name for name in SUMS[1:]})
    ones = pa.array(np.ones(counts.num_rows, np.int64))
    return summed([counts.append_column("documents", ones).select(CHARACTERS.names).cast(CHARACTERS)])


def edit_columns(names: Sequence[str]) -> list[str]:
    """Return those columns of a verdict table that count the characters of edits."""
    return [name for name in names if f".{REMOVED}" in name or f".{INSERTED}" in name]


def of_scores(verdicts: pa.Table, links: Sequence[str]) -> pa.Table:
    """Return the sums of a verdict table with domains: over all that a stage judged, whatever became of them later.

    Args:
        verdicts: of a split.
        links: the stages, in order. What one of them drops, no later one has judged, although it may have edited it
            before the limit was tightened.
    """
    ended = pc.fill_null(pc.index_in(verdicts.column("dropped_by"), value_set=pa.array(links, pa.string())), len(links))
    parts = []
    for name in verdicts.column_names:
        link, is_counted, reason = name.partition(f".{REMOVED}")
        if not is_counted:
            continue
        removed = pc.fill_null(verdicts.column(name), 0)
        inserted = pc.fill_null(verdicts.column(f"{link}.{INSERTED}{reason}"), 0)
        edited = pc.and_(pc.greater(pc.add(removed, inserted), 0), pc.greater_equal(ended, links.index(link)))
        size = verdicts.num_rows
        columns = {
            "edited_by": pa.repeat(pa.scalar(link), size),
            "reason": pa.repeat(pa.scalar(reason), size),
            "language": verdicts.column("language"),
            "domain": verdicts.column("domain"),
            "documents": pc.cast(edited, pa.int64()),
            "removed_chars": removed,
            "inserted_chars": inserted,
        }
        parts.append(pa.table(columns, schema=CHARACTERS).filter(edited))
    return summed(parts)
