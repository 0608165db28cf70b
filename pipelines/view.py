"""The final documents of a run: what was judged, with drops and edits laid over it.

Whoever needs the text that is trained on reads it here, batch by batch: the tokeniser's fit, the shards, samples and
traces. Nobody else leaves out what was dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.run import Run
from pipelines.tables import is_in, read_batches, read_table
from shards.store import FileEntry, Store
from stages.edits import EDITS, apply_edits

EDIT_FILE: Final = pa.schema(
    [
        pa.field("doc_id", pa.int64(), nullable=False),
        *(field for field in EDITS if field.name != "row"),
        pa.field("edited_by", pa.string(), nullable=False),
    ]
)
"""Edits of judged texts, by document and place: ``start`` and ``end`` are byte offsets into the judged text. A file has
a batch of them for each batch of the split's documents."""

EDITS_PASS: Final = "edits"
"""The pass that writes them, in a run whose recipe has [[edits]]."""


class ViewFiles(NamedTuple):
    """The files of a split that make up its final documents.

    Attributes:
        documents: what the judges kept.
        drops: what was dropped later.
        edits: what was changed in their texts; None where the recipe has no [[edits]].
        part: which share of the batches is read, from 0 on.
        parts: into how many equal shares the batches are dealt, in order.
    """

    documents: FileEntry
    drops: FileEntry
    edits: FileEntry | None = None
    part: int = 0
    parts: int = 1


def documents(store: Store, files: ViewFiles, only: npt.NDArray[np.int64] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the final documents of a split, batch by batch, in doc_id order.

    ``text`` and ``text_bytes`` are those that are left; all other columns, ``content_hash`` among them, are of the
    judged text.

    Args:
        store: the run's.
        files: the split's.
        only: yield these documents and no others, dropped ones too; a sorted array of doc_ids.
    """
    gone = np.empty(0, np.int64)
    if only is None:
        gone = read_table(store, files.drops, ["doc_id"]).column("doc_id").to_numpy()
    for batch, edits in _with_edits(store, files):
        ids = batch.column("doc_id").to_numpy()
        batch = batch.filter(pa.array(~is_in(ids, gone) if only is None else is_in(ids, only)))
        yield batch if edits is None else _edited(batch, edits)


def _with_edits(store: Store, files: ViewFiles) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    share = files.part, files.parts
    batches = read_batches(store, files.documents, *share)
    if files.edits is None:
        yield from ((batch, None) for batch in batches)
    else:
        yield from zip(batches, read_batches(store, files.edits, *share), strict=True)


def _edited(batch: pa.RecordBatch, edits: pa.RecordBatch) -> pa.RecordBatch:
    """Return documents with those edits applied that are of one of them."""
    ids, of = batch.column("doc_id").to_numpy(), edits.column("doc_id").to_numpy()
    mine = is_in(of, ids)
    if not mine.any():
        return batch
    rows = pa.array(np.searchsorted(ids, of[mine]).astype(np.int64))
    edits = edits.filter(pa.array(mine))
    columns = [rows, *(edits.column(name) for name in EDITS.names if name != "row")]
    text = apply_edits(batch.column("text"), pa.RecordBatch.from_arrays(columns, schema=EDITS))
    for name, column in (("text", text), ("text_bytes", pc.binary_length(text).cast(pa.int64()))):
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, batch.schema.field(name), column)
    return batch


def edits_of(store: Store, files: ViewFiles, ids: npt.NDArray[np.int64]) -> dict[int, list[dict[str, Any]]]:
    """Return the edits of some documents of a split, given by a sorted array of doc_ids, by document and place."""
    found: dict[int, list[dict[str, Any]]] = {}
    for batch in read_batches(store, files.edits) if files.edits is not None else ():
        mine = pa.array(is_in(batch.column("doc_id").to_numpy(), ids))
        for row in batch.filter(mine).to_pylist():
            found.setdefault(row.pop("doc_id"), []).append(row)
    return found


def drop_files(run: Run) -> Mapping[str, FileEntry]:
    """Return the files of all that was dropped after judging so far, by split, in order."""
    return run.files(EDITS_PASS if run.has(EDITS_PASS) else "drops", "drops")


def view_files(run: Run, splits: Sequence[str] | None = None) -> dict[str, ViewFiles]:
    """Return what a run's final documents are read from, so far, by split, in order: of some splits, or of all."""
    judged, drops = run.files("judge", "documents"), drop_files(run)
    edits = run.files(EDITS_PASS, "edits") if run.has(EDITS_PASS) else {}
    wanted = judged if splits is None else splits
    return {split: ViewFiles(judged[split], drops[split], edits.get(split)) for split in wanted}
