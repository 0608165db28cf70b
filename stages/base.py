"""What a stage is: a frozen dataclass of its parameters with one pure method, ``judge``.

``mark`` applies a stage to a batch: it shows the stage only the rows that are still unmarked and in the stage's
domains, and turns the verdict into marks. So every record is dropped or failed by at most one stage, and statistics are
a group-by. A document on which a stage raises an error, or panics, is one that failed in it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, cast, dataclass_transform, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass

from stages import failing
from stages.failing import Failure

T = TypeVar("T")

KEPT = -1
"""Code in ``Verdict.codes`` of a row that stays."""


@dataclass(frozen=True)
class Verdict:
    """What a stage says of the ``n`` rows it was shown.

    Attributes:
        codes: int8 array of shape (n,): ``KEPT``, or an index into ``stage.reasons + failures_of(stage)``.
        value: float64 array of shape (n,): the measure that decided, NaN where there is none; None for none at all.
        columns: new or replaced columns, each an Arrow array of length n. New ones are declared in ``stage.columns``.
        detail: for failed rows, what went wrong, by row; None if there is nothing to say.
    """

    codes: npt.NDArray[np.int8]
    value: npt.NDArray[np.float64] | None = None
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    detail: pa.Array | None = None


@runtime_checkable
class Stage(Protocol):
    """A judge of documents. Build one with ``@stage``; it holds parameters only, never a loaded model."""

    name: ClassVar[str]
    """Registered name with its behaviour version, such as ``gopher_quality_v2``. Other results: another version."""
    reasons: ClassVar[tuple[str, ...]]
    """Every reason for which it may drop."""
    failures: ClassVar[tuple[str, ...]]
    """Every way in which a document may fail in it, as opposed to being judged, beside ``stages.failing.FAILURES``."""
    columns: ClassVar[Mapping[str, pa.DataType]]
    """The columns that it adds, with their types; null for rows it was not shown."""
    path_parameters: ClassVar[tuple[str, ...]]
    """Its parameters that hold paths (a string, or strings in a tuple or mapping), relative to the recipe's folder."""
    domains: tuple[str, ...]
    """Domains it judges; empty for all."""

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Return the verdict on every row of ``batch``. Pure: the same rows give the same verdict in any batch.

        May raise whatever it likes on a document that it cannot judge: ``mark`` finds the document and fails it.
        """
        ...

    def files(self) -> tuple[str, ...]:
        """Return the paths of models and lists it reads: checked before a run, their content part of the digest."""
        ...

    def prepare(self) -> None:
        """Load what it needs into this process's cache, so that a wrong file fails before any data is read.

        Raises:
            UserError: if a model or list is not what it should be.
        """
        ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, pydantic.Field))
def stage(cls: type[T]) -> type[T]:
    """Make a class a stage: a frozen, keyword-only, validated dataclass which rejects unknown parameters.

    Adds ``domains``, and empty ``failures``, ``columns``, ``path_parameters``, ``files()`` and ``prepare()`` where the
    class has none.
    """
    for name, default in (("failures", ()), ("columns", {}), ("path_parameters", ())):
        if not hasattr(cls, name):
            setattr(cls, name, default)
    if not hasattr(cls, "files"):
        cls.files = lambda self: ()  # type: ignore[attr-defined]
    if not hasattr(cls, "prepare"):
        cls.prepare = lambda self: None  # type: ignore[attr-defined]
    cls.__annotations__ = {**cls.__annotations__, "domains": tuple[str, ...]}
    if "domains" not in cls.__dict__:
        cls.domains = ()  # type: ignore[attr-defined]
    config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return cast(type[T], pydantic_dataclass(frozen=True, kw_only=True, config=config)(cls))


def parameters(stage: Stage) -> dict[str, Any]:
    """Return the parameters of a stage as plain values, for the resolved recipe and the digest."""
    return dataclasses.asdict(cast(Any, stage))


def failures_of(stage: Stage | type[Stage]) -> tuple[str, ...]:
    """Return every way in which a document may fail in ``stage``: its own, then those of any stage."""
    return (*stage.failures, *failing.FAILURES)


def keep_all(rows: int) -> npt.NDArray[np.int8]:
    """Return codes that keep every row."""
    return np.full(rows, KEPT, dtype=np.int8)


def first_failing(*checks: tuple[int, npt.NDArray[np.bool_], npt.NDArray[np.float64]]) -> Verdict:
    """Fold checks (code, drop mask, measure), each of shape (n,), into a verdict: the first hit decides."""
    codes = keep_all(len(checks[0][1]))
    value = np.full(len(codes), np.nan)
    for code, drop, measure in checks:
        hit = drop & (codes == KEPT)
        codes[hit] = code
        value[hit] = measure[hit]
    return Verdict(codes, value)


Judge = Callable[[Stage, pa.RecordBatch], Verdict]
"""Returns the verdict of a stage on a batch of at least one row, all of which it is to judge."""


def live_mask(stage: Stage, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return the mask, shape (rows,), of the rows that ``stage`` judges: unmarked and in its domains."""
    live: npt.NDArray[np.bool_] = pc.is_null(batch.column("dropped_by")).to_numpy(zero_copy_only=False)
    if stage.domains:
        inside = pc.is_in(batch.column("domain"), value_set=pa.array(stage.domains, pa.string()))
        live &= inside.to_numpy(zero_copy_only=False)
    return live


def mark(stage: Stage, batch: pa.RecordBatch, judge: Judge | None = None) -> pa.RecordBatch:
    """Apply ``stage`` to ``batch``: the same rows in the same order, with its marks and columns.

    Adds the stage's declared columns even where it judges no row, so that all batches of a pass share one schema.
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
    elif len(rows) == len(live):
        verdict = (judge or judged)(stage, batch)
    else:
        verdict = (judge or judged)(stage, batch.take(pa.array(rows)))
    scatter = _scatter_index(rows, len(live))
    # In the declared order and types, whether or not this batch has a row to judge.
    updates: dict[str, pa.Array] = {
        name: pa.nulls(len(live), kind) for name, kind in stage.columns.items() if name not in batch.schema.names
    }
    for name, array in verdict.columns.items():
        scattered = _scattered(batch, name, array, scatter, live)
        updates[name] = scattered.cast(stage.columns[name]) if name in stage.columns else scattered
    updates |= _marks(stage, batch, verdict, rows)
    return _with_columns(batch, updates)


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
        return failing.error_of(lambda: stage.judge(failing.harmless(batch.schema)))

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
    return Verdict(
        np.concatenate([one.codes for _, one in verdicts]),
        np.concatenate(values),
        {name: _joined_column(stage, batch, name, verdicts) for name in names},
        pa.concat_arrays([detail.cast(pa.string()) for detail in details]),
    )


def _whole(stage: Stage, verdict: Verdict, rows: int) -> Verdict:
    if len(verdict.codes) != rows:
        raise AssertionError(f"{stage.name} judged {len(verdict.codes)} of {rows} rows")
    return verdict


def _joined_column(
    stage: Stage, batch: pa.RecordBatch, name: str, verdicts: Sequence[tuple[range, Verdict]]
) -> pa.Array:
    had = batch.column(name) if name in batch.schema.names else None
    kind = stage.columns.get(name) or (had.type if had is not None else None)
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
        "dropped_by": pc.if_else(mask, pa.scalar(stage.name), batch.column("dropped_by")),
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


def text_of(batch: pa.RecordBatch) -> list[str]:
    """Return the texts of a batch as Python strings, an empty one for null."""
    return [text or "" for text in batch.column("text").to_pylist()]


def per_row(batch: pa.RecordBatch, measure: Callable[[str], float]) -> npt.NDArray[np.float64]:
    """Return ``measure`` of every text, as float64 of shape (rows,)."""
    return np.fromiter((measure(text) for text in text_of(batch)), np.float64, batch.num_rows)
