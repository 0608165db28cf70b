"""Applying a stage to a batch: it is shown the rows that are still unmarked and in its domains, and its verdict becomes
marks.

So every record is dropped or failed by at most one stage, and statistics are a group-by. A document on which a stage
raises an error, or panics, is one that failed in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import failing, scans
from stages.base import Stage, Verdict, columns_of, failures_of, link_of
from stages.checks import KEPT
from stages.edits import joined_edits
from stages.failing import Failure
from stages.limits import GROUPS

Judge = Callable[[Stage, pa.RecordBatch], Verdict]
"""Returns the verdict of a stage on a batch of at least one row, all of which it is to judge."""


def live_domains(stage: Stage, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return the mask, shape (rows,), of the rows that are in the domains that ``stage`` judges."""
    if not stage.domains:
        return np.ones(batch.num_rows, np.bool_)
    inside = pc.is_in(batch.column("domain"), value_set=pa.array(stage.domains, pa.string()))
    return np.asarray(inside.to_numpy(zero_copy_only=False), np.bool_)


def live_mask(stage: Stage, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return the mask, shape (rows,), of the rows that ``stage`` judges: unmarked and in its domains."""
    live: npt.NDArray[np.bool_] = pc.is_null(batch.column("dropped_by")).to_numpy(zero_copy_only=False)
    return live & live_domains(stage, batch)


def mark(stage: Stage, batch: pa.RecordBatch, judge: Judge | None = None) -> pa.RecordBatch:
    """Apply ``stage`` to ``batch``: the same rows in the same order, with its marks and columns.

    Adds the stage's declared columns even where it judges no row, so that all batches of a pass share one schema. The
    text of a row that it edits is what its edits leave.
    A row on which the stage raises an error is failed, for ``failing.STAGE_ERROR``; the others are judged without it.

    Args:
        stage: what judges.
        batch: documents.
        judge: how it judges: ``judged``, unless another process is to do so.

    Raises:
        UserError: if a model or list of the stage is not what it should be.
        OSError: if it cannot be read.
        Exception: whatever the stage raises on any document, so that a broken stage fails no document.
    """
    live = live_mask(stage, batch)
    rows = np.flatnonzero(live)
    if not len(rows):
        verdict = Verdict(np.empty(0, np.int8))
    elif judge is not None:
        verdict = judge(stage, _shown(stage, batch, rows))
    else:
        verdict = judged(stage, scans.with_shared(stage.scans, batch, rows, _shown(stage, batch, rows)))
    scatter = _scatter_index(rows, len(live))
    # In the declared order and types, whether or not this batch has a row to judge.
    declared = columns_of(stage)
    updates: dict[str, pa.Array] = {
        name: pa.nulls(len(live), kind) for name, kind in declared.items() if name not in batch.schema.names
    }
    for name, array in verdict.columns.items():
        scattered = _scattered(batch, name, array, scatter, live)
        updates[name] = scattered.cast(declared[name]) if name in declared else scattered
    updates |= _marks(stage, batch, verdict, rows)
    return _with_columns(batch, updates)


def unmarked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its marks taken off: as if no stage had judged it."""
    empty = {name: pa.nulls(batch.num_rows, batch.schema.field(name).type) for name in _MARKS}
    return _with_columns(batch, {**empty, "failed": pa.repeat(pa.scalar(value=False), batch.num_rows)})


_MARKS = ("dropped_by", "reason", "value", "detail")


def _shown(stage: Stage, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows that a stage is to judge, with the columns that it needs, and those by which limits differ."""
    wanted = [name for name in batch.schema.names if name in stage.needs or name in GROUPS]
    shown = batch.select(wanted)
    return shown if len(rows) == batch.num_rows else shown.take(pa.array(rows))


def judged(stage: Stage, batch: pa.RecordBatch) -> Verdict:
    """Return the verdict of ``stage`` on rows that it is to judge, those failed on which it raises an error."""
    try:
        found = failing.call_first(stage.judge, batch)
    except BaseException as error:
        return joined(stage, batch, _judged_apart(stage, batch, error))
    return _whole(stage, found, batch.num_rows)


def _judged_apart(stage: Stage, batch: pa.RecordBatch, error: BaseException) -> list[tuple[range, Verdict | Failure]]:
    """Judge rows that cannot be judged together because of ``error``."""

    def judge(rows: range) -> Verdict:
        return failing.call_again(stage.judge, batch.slice(rows.start, len(rows)))

    @functools.cache
    def own_error() -> type[BaseException] | None:
        # Without scans: of the plain document the stage has to make its own.
        names = {scan.column for scan in stage.scans}
        schema = pa.schema([field for field in batch.schema if field.name not in names])
        return failing.error_of(lambda: stage.judge(failing.harmless(schema)))

    def failure_of(error: BaseException) -> Failure | None:
        is_of_a_document = not isinstance(error, failing.NOT_OF_A_DOCUMENT) and type(error) is not own_error()
        return Failure.of(error) if is_of_a_document else None

    return failing.settle_failed(range(batch.num_rows), error, judge, failure_of)


def joined(stage: Stage, batch: pa.RecordBatch, pieces: Sequence[tuple[range, Verdict | Failure]]) -> Verdict:
    """Return the verdict on ``batch`` that consists of verdicts on consecutive rows of it, and of failures.

    A failed row keeps the columns that it had; those that the verdict adds are null in it.
    """
    codes = {reason: len(stage.reasons) + code for code, reason in enumerate(failures_of(stage))}
    verdicts: list[tuple[range, Verdict]] = []
    for rows, found in pieces:
        if isinstance(found, Failure):
            found = Verdict(np.array([codes[found.reason]], np.int8), detail=pa.array([found.detail], pa.string()))
        verdicts.append((rows, _whole(stage, found, len(rows))))
    if len(verdicts) == 1:
        return verdicts[0][1]
    values = [np.full(len(rows), np.nan) if one.value is None else one.value for rows, one in verdicts]
    details = [pa.nulls(len(rows), pa.string()) if one.detail is None else one.detail for rows, one in verdicts]
    names = dict.fromkeys(name for _, one in verdicts for name in one.columns)
    edits = [(rows.start, one.edits) for rows, one in verdicts if one.edits is not None]
    return Verdict(
        np.concatenate([one.codes for _, one in verdicts]),
        np.concatenate(values),
        {name: _joined_column(stage, batch, name, verdicts) for name in names},
        pa.concat_arrays([detail.cast(pa.string()) for detail in details]),
        joined_edits(edits) if edits else None,
    )


def _whole(stage: Stage, verdict: Verdict, rows: int) -> Verdict:
    if len(verdict.codes) != rows:
        raise AssertionError(f"{link_of(stage)} judged {len(verdict.codes)} of {rows} rows")
    return verdict


def _joined_column(
    stage: Stage, batch: pa.RecordBatch, name: str, verdicts: Sequence[tuple[range, Verdict]]
) -> pa.Array:
    had = batch.column(name) if name in batch.schema.names else None
    kind = columns_of(stage).get(name) or (had.type if had is not None else None)
    kind = kind or next(one.columns[name].type for _, one in verdicts if name in one.columns)
    parts = []
    for rows, one in verdicts:
        if name in one.columns:
            part = one.columns[name]
        else:
            part = pa.nulls(len(rows), kind) if had is None else had.slice(rows.start, len(rows))
        parts.append(part.cast(kind))
    return pa.concat_arrays(parts)


def _scatter_index(rows: npt.NDArray[np.int64], total: int) -> pa.Array:
    index = np.zeros(total, np.int64)
    index[rows] = np.arange(len(rows))
    mask = np.ones(total, np.bool_)
    mask[rows] = False
    return pa.array(index, mask=mask)


def _scattered(
    batch: pa.RecordBatch, name: str, array: pa.Array, scatter: pa.Array, live: npt.NDArray[np.bool_]
) -> pa.Array:
    spread = array.take(scatter)
    if name not in batch.schema.names:
        return spread
    return pc.if_else(pa.array(live), spread, batch.column(name))


def _marks(stage: Stage, batch: pa.RecordBatch, verdict: Verdict, rows: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    hit = verdict.codes != KEPT
    if not hit.any():
        return {}
    total = batch.num_rows
    marked = np.zeros(total, np.bool_)
    marked[rows[hit]] = True
    mask = pa.array(marked)
    names = _reason_array(stage.reasons + failures_of(stage))
    codes = np.zeros(total, np.int64)
    codes[rows[hit]] = verdict.codes[hit]
    marks = {
        "dropped_by": pc.if_else(mask, pa.scalar(link_of(stage)), batch.column("dropped_by")),
        "reason": pc.if_else(mask, names.take(pa.array(codes)), batch.column("reason")),
        "failed": pc.or_(batch.column("failed"), pa.array(marked & (codes >= len(stage.reasons)))),
    }
    if verdict.value is not None:
        values = np.full(total, np.nan)
        values[rows] = verdict.value
        spread = pa.array(values, mask=np.isnan(values))
        marks["value"] = pc.if_else(mask, spread, batch.column("value"))
    if verdict.detail is not None:
        scatter = _scatter_index(rows, total)
        marks["detail"] = pc.if_else(mask, verdict.detail.take(scatter), batch.column("detail"))
    return marks


@functools.lru_cache(maxsize=64)
def _reason_array(names: tuple[str, ...]) -> pa.Array:
    return pa.array(names, pa.string())


def _with_columns(batch: pa.RecordBatch, updates: Mapping[str, pa.Array]) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    fields = {f.name: f for f in batch.schema}
    for name, array in updates.items():
        if name in fields:
            columns[name] = array.cast(fields[name].type)
        else:
            columns[name], fields[name] = array, pa.field(name, array.type)
    return pa.RecordBatch.from_arrays(
        list(columns.values()), schema=pa.schema(list(fields.values()), metadata=batch.schema.metadata)
    )
