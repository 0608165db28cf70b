"""What a stage is: a frozen dataclass of its parameters with one pure method, ``judge``.

``mark`` applies a stage to a batch: it shows the stage only the rows that are still unmarked and in the stage's
domains, and turns the verdict into marks. So every record is dropped or failed by at most one stage, and statistics are
a group-by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, cast, dataclass_transform, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass

T = TypeVar("T")

KEPT = -1
"""Code in ``Verdict.codes`` of a row that stays."""


@dataclass(frozen=True)
class Verdict:
    """What a stage says of the ``n`` rows it was shown.

    Attributes:
        codes: int8 array of shape (n,): ``KEPT``, or an index into ``stage.reasons + stage.failures``.
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
    """Registered name with its behaviour version, such as ``gopher_quality_v1``. Other results: another version."""
    reasons: ClassVar[tuple[str, ...]]
    """Every reason for which it may drop."""
    failures: ClassVar[tuple[str, ...]]
    """Every way in which a document may fail in it, as opposed to being judged."""
    columns: ClassVar[Mapping[str, pa.DataType]]
    """The columns that it adds, with their types; null for rows it was not shown."""
    path_parameters: ClassVar[tuple[str, ...]]
    """Its parameters that hold paths (a string, or strings in a tuple or mapping), relative to the recipe's folder."""
    domains: tuple[str, ...]
    """Domains it judges; empty for all."""

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Return the verdict on every row of ``batch``. Pure: the same rows give the same verdict in any batch."""
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


def live_mask(stage: Stage, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return the mask, shape (rows,), of the rows that ``stage`` judges: unmarked and in its domains."""
    live: npt.NDArray[np.bool_] = pc.is_null(batch.column("dropped_by")).to_numpy(zero_copy_only=False)
    if stage.domains:
        inside = pc.is_in(batch.column("domain"), value_set=pa.array(stage.domains, pa.string()))
        live &= inside.to_numpy(zero_copy_only=False)
    return live


def mark(stage: Stage, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Apply ``stage`` to ``batch``: the same rows in the same order, with its marks and columns.

    Adds the stage's declared columns even where it judges no row, so that all batches of a pass share one schema.
    """
    live = live_mask(stage, batch)
    rows = np.flatnonzero(live)
    if not len(rows):
        verdict = Verdict(np.empty(0, np.int8))
    elif len(rows) == len(live):
        verdict = stage.judge(batch)
    else:
        verdict = stage.judge(batch.take(pa.array(rows)))
    if len(verdict.codes) != len(rows):
        raise AssertionError(f"{stage.name} judged {len(verdict.codes)} of {len(rows)} rows")
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
    names = pa.array(stage.reasons + stage.failures, pa.string())
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
