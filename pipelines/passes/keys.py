"""What the passes over keys share: the keys of documents still alive, and what orders them among their duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.planning.labels import Labelling
from pipelines.tables import is_in, one_array, read_table
from shards.store import FileEntry, Store
from stages.dedup.order import priorities

Prefer = tuple[str, bool]
"""A column of the verdicts, and whether its largest value comes first."""


def alive_keys(store: Store, keys: FileEntry, late: FileEntry | None, columns: Iterable[str]) -> pa.Table:
    """Return ``columns`` of the keys of a split's documents that no limit dropped, early or late, in doc_id order.

    Args:
        store: the run's.
        keys: the split's.
        late: the marks laid over what judging found, where the recipe's limits ask for any.
        columns: of the table of keys.
    """
    table = read_table(store, keys, dict.fromkeys([*columns, "doc_id"]))
    if late is not None:
        gone = read_table(store, late, ["doc_id"]).column("doc_id").to_numpy()
        table = table.filter(pa.array(~is_in(table.column("doc_id").to_numpy(), gone)))
    return table.select(list(columns))


def priorities_of(
    store: Store,
    table: pa.Table,
    labels: tuple[Labelling, Sequence[Sequence[int]]],
    prefer: tuple[Prefer, FileEntry] | None,
) -> npt.NDArray[np.int64]:
    """Return the priorities of documents of a split, int64 of shape (n,): the smallest stays.

    Args:
        store: the run's.
        table: documents, with ``doc_id``, ascending, and ``source_index``.
        labels: the priorities of sources, and the split's sources.
        prefer: a column to take instead, and the split's verdicts.
    """
    if prefer is None:
        labelling, sources = labels
        joined = labelling.labels(sources).join(table.select(["source_index"]), ["priority"])
        return np.asarray(joined.column("priority").to_numpy(), np.int64)
    (column, largest_first), verdicts = prefer
    found = read_table(store, verdicts, ["doc_id", column])
    ids = found.column("doc_id").to_numpy()
    values = priorities(one_array(found.column(column)), largest_first=largest_first)
    place = np.searchsorted(ids, table.column("doc_id").to_numpy())
    return np.asarray(values[place])
