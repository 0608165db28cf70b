"""What a stage is: a frozen dataclass of its parameters that measures documents, and declares what is dropped.

A stage *measures*: every score of every document that it judged is kept. What is dropped is said by the *checks* beside
its scores, so a limit can be moved without measuring again, and one function decides for all stages. ``stages.marking``
applies a stage to a batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, cast, dataclass_transform, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass

from shards.schema import DOCUMENT, UNKNOWN_LANGUAGE
from stages import failing
from stages.checks import KEPT, Check, Rule, decide, percentiles_of, rule_of
from stages.edits import apply_edits, counted, edit_scores, no_edits, require_valid
from stages.failing import Failure
from stages.limits import GROUPS, Percentile
from stages.scans import Scan
from stages.scores import Score, Values

T = TypeVar("T")

INSTANCE: str = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""Names that a stage may have: they are parts of column names and of what a command line names."""


@dataclass(frozen=True)
class Measured:
    """What a stage measures of n documents. A stage without columns and failures may return the scores alone.

    Attributes:
        scores: n values of every score that it declares, by name.
        columns: new or replaced columns, each an Arrow array of length n. New ones are declared in ``stage.columns``.
        failures: documents that it could not judge, by row; the reason is declared in ``stage.failures``.
        details: what there is to say of a drop, string array of length n; a category says itself.
        edits: what it changes in the text, a table in the schema ``stages.edits.EDITS`` for reasons in ``stage.edits``.
    """

    scores: Mapping[str, Values] = field(default_factory=dict)
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    failures: Mapping[int, Failure] = field(default_factory=dict)
    details: pa.Array | None = None
    edits: pa.RecordBatch | None = None


@dataclass(frozen=True)
class Verdict:
    """What a stage says of the ``n`` rows it was shown.

    Attributes:
        codes: int8 array of shape (n,): ``KEPT``, or an index into ``stage.reasons + failures_of(stage)``.
        value: float64 array of shape (n,): the score that decided, NaN where there is none; None for none at all.
        columns: new or replaced columns, each an Arrow array of length n: ``columns_of(stage)``, and replaced ones.
        detail: for marked rows, what there is to say, by row; None if there is nothing.
        edits: what led from the text that it was shown to the column ``text``; None where nothing did.
    """

    codes: npt.NDArray[np.int8]
    value: npt.NDArray[np.float64] | None = None
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    detail: pa.Array | None = None
    edits: pa.RecordBatch | None = None


@runtime_checkable
class Stage(Protocol):
    """A judge of documents. Build one with ``@stage``; it holds parameters only, never a loaded model."""

    name: ClassVar[str]
    """Registered name with its behaviour version, such as ``gopher_quality_v2``. Other results: another version."""
    scores: ClassVar[tuple[Score, ...]]
    """What it measures."""
    checks: ClassVar[tuple[Check, ...]]
    """What is dropped, in the order in which checks give the reason."""
    failures: ClassVar[tuple[str, ...]]
    """Every way in which a document may fail in it, as opposed to being judged, beside ``stages.failing.FAILURES``."""
    columns: ClassVar[Mapping[str, pa.DataType]]
    """The columns that it adds beside its scores, with their types; null for rows it was not shown."""
    needs: ClassVar[tuple[str, ...]]
    """The columns that it reads."""
    edits: ClassVar[tuple[str, ...]]
    """Every reason for which it changes the text. Of each the characters removed and inserted are scores."""
    scans: ClassVar[tuple[Scan, ...]]
    """What it reads of scans that other stages may share."""
    path_parameters: ClassVar[tuple[str, ...]]
    """Its parameters that hold paths (a string, or strings in a tuple or mapping), relative to the recipe's folder."""
    language_models: ClassVar[str]
    """The parameter that the recipe's language models go into, by language; empty for a stage that takes none."""
    decides_measures: ClassVar[frozenset[str]]
    """Limits on which scores or columns depend besides, so that moving one needs another judging."""
    applied_later: ClassVar[frozenset[str]]
    """Parameters that later passes apply: nothing that it measures depends on them."""
    domains: tuple[str, ...]
    """Domains it judges; empty for all."""
    instance: str
    """Its name in a chain that has the stage more than once; empty for ``name``."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason for which it may drop, in the order of its checks."""
        ...

    def measure(self, batch: pa.RecordBatch) -> Measured | Mapping[str, Values]:
        """Measure every row of ``batch``. Pure: the same rows give the same scores in any batch.

        May raise whatever it likes on a document that it cannot measure: ``stages.marking`` finds the document and
        fails it.
        """
        ...

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Measure every row of ``batch``, and decide by the limits that are known: those that are no percentiles.

        Args:
            batch: has the columns of ``needs``; those that a reader fills with a default may be missing.

        Raises:
            ValueError: if a column that it needs is missing.
        """
        ...

    def files(self) -> tuple[str, ...]:
        """Return the paths of models and lists it reads: checked before a run, their content part of the digest."""
        ...

    def check_files(self) -> None:
        """Check that models and lists are what they should be, before any data is read, and without loading models.

        Raises:
            UserError: for the first that is not.
        """
        ...

    def known_languages(self) -> frozenset[str] | None:
        """Return the languages that the stage can give a document; None if it gives none."""
        ...

    def named_languages(self) -> Mapping[str, Sequence[str]]:
        """Return the languages that its parameters name, by parameter, limits apart."""
        ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, pydantic.Field))
def stage(cls: type[T]) -> type[T]:
    """Make a class a stage: a frozen, keyword-only, validated dataclass which rejects unknown parameters.

    The class has ``name``, ``measure``, and ``scores`` and ``checks`` as far as it drops; ``needs`` is the text, unless
    it says otherwise. Everything else of ``Stage`` is added where it has none, and the scores that count its edits.

    Raises:
        TypeError: if a check names a score or a parameter that there is not, or it edits a text that it does not need.
    """
    for name, default in _UNDECLARED.items():
        if not hasattr(cls, name):
            setattr(cls, name, default)
    kind = cast(Any, cls)
    # A class that inherits from a stage has its scores already.
    had = {score.name for score in kind.scores}
    kind.scores = (*kind.scores, *(score for score in edit_scores(kind.edits) if score.name not in had))
    methods: dict[str, Any] = {"judge": _judge, "files": _no_files, "check_files": _no_check}
    methods |= {"known_languages": _no_known, "named_languages": _no_named}
    for name, method in methods.items():
        if not hasattr(cls, name):
            setattr(cls, name, method)
    cls.reasons = property(lambda self: reasons_of(self))  # type: ignore[attr-defined]
    cls.__annotations__ = {**cls.__annotations__, "domains": tuple[str, ...], "instance": str}
    for name, default in (("domains", ()), ("instance", "")):
        if name not in cls.__dict__:
            setattr(cls, name, default)
    _require_declared(cls)
    config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_default=True)
    return cast(type[T], pydantic_dataclass(frozen=True, kw_only=True, config=config)(cls))


_UNDECLARED: Mapping[str, Any] = {
    **dict.fromkeys(("scores", "checks", "failures", "edits", "scans", "path_parameters"), ()),
    "columns": {},
    "needs": ("text",),
    "language_models": "",
    **dict.fromkeys(("decides_measures", "applied_later"), frozenset()),
}
"""What a stage has that does not declare it."""


def _require_declared(cls: Any) -> None:
    scores = {score.name for score in cls.scores}
    if cls.edits and "text" not in cls.needs:
        raise TypeError(f"{cls.__name__} edits the text, which is not among the columns that it needs")
    parameters = {name for base in cls.__mro__ for name in getattr(base, "__annotations__", {})}
    for check in cls.checks:
        if check.score not in scores:
            raise TypeError(f"{cls.__name__}: the check {check.reason!r} is of {check.score!r}, which is not a score")
        for name in check.parameters():
            if name.partition(".")[0] not in parameters:
                raise TypeError(f"{cls.__name__}: the check {check.reason!r} reads {name!r}, which is not a parameter")


def _no_files(self: Stage) -> tuple[str, ...]:
    return ()


def _no_check(self: Stage) -> None:
    return None


def _no_known(self: Stage) -> frozenset[str] | None:
    return None


def _no_named(self: Stage) -> Mapping[str, Sequence[str]]:
    return {}


def _judge(self: Stage, batch: pa.RecordBatch) -> Verdict:
    batch = completed(self, batch)
    found = self.measure(batch)
    return _decided(self, batch, found if isinstance(found, Measured) else Measured(found))


def completed(stage: Stage, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` with all that ``stage`` reads: scans, and columns as a reader fills them that it has not.

    Raises:
        ValueError: if a column is missing that has no default.
    """
    for name in (*stage.needs, *GROUPS):
        if name not in batch.schema.names:
            if name not in _DEFAULTS:
                raise ValueError(f"{stage.name} needs the column {name!r}; the batch has {batch.schema.names}")
            value = pa.scalar(_DEFAULTS[name], DOCUMENT.field(name).type)
            batch = batch.append_column(DOCUMENT.field(name), pa.repeat(value, batch.num_rows))
    for scan in stage.scans:
        if scan.column not in batch.schema.names:
            batch = batch.append_column(scan.column, scan.of(batch))
    return batch


_DEFAULTS: Mapping[str, Any] = {
    "language": UNKNOWN_LANGUAGE,
    "domain": "",
    **dict.fromkeys(("url", "host", "date", "licence", "payload", "media_type")),
}
"""What a reader fills a column with that it knows nothing of."""


def _decided(stage: Stage, batch: pa.RecordBatch, measured: Measured) -> Verdict:
    measured = _edited(stage, batch, measured)
    columns = {score.name: score.column(measured.scores[score.name]) for score in stage.scores}
    groups = {name: measured.columns.get(name, batch.column(name)) for name in GROUPS}
    rules = early_rules(stage)
    codes, value, said = decided(rules, columns, groups, batch.num_rows)
    detail = measured.details
    if any(text is not None for text in said):
        own = pa.array(said, pa.string())
        detail = own if detail is None else pc.coalesce(own, detail)
    if measured.failures:
        detail = detail or pa.nulls(batch.num_rows, pa.string())
        names, texts = failures_of(stage), detail.to_pylist()
        for row, failure in measured.failures.items():
            codes[row], value[row] = len(stage.reasons) + names.index(failure.reason), np.nan
            texts[row] = failure.detail
        detail = pa.array(texts, pa.string())
    scores = {score_column(stage, name): column for name, column in columns.items()}
    return Verdict(codes, value, {**measured.columns, **scores}, detail, measured.edits)


def _edited(stage: Stage, batch: pa.RecordBatch, measured: Measured) -> Measured:
    """Return what a stage measured, with the text that its edits leave, and their counts among the scores."""
    if not stage.edits:
        if measured.edits is not None:
            raise TypeError(f"{stage.name} edits the text, and declares no reason for it")
        return measured
    edits, text = no_edits() if measured.edits is None else measured.edits, batch.column("text")
    require_valid(text, edits, stage.edits)
    scores = {**measured.scores, **counted(text, edits, stage.edits)}
    columns = {**measured.columns, "text": apply_edits(text, edits)} if edits.num_rows else measured.columns
    return dataclasses.replace(measured, scores=scores, columns=columns, edits=edits)


def decided(
    rules: Sequence[Rule], scores: Mapping[str, pa.Array], groups: Mapping[str, pa.Array], rows: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64], list[str | None]]:
    """Decide ``rows`` documents by rules in order.

    Returns:
        (index of the reason or ``KEPT``, int8; the number that decided or NaN, float64; the name that decided or None).
    """
    first = decide(rules, scores, groups, rows)
    codes, value = np.full(rows, KEPT, np.int8), np.full(rows, np.nan)
    said: list[str | None] = [None] * rows
    for position in np.unique(first[first != KEPT]).tolist():
        rule, hit = rules[position], first == position
        codes[hit] = rule.code
        column = scores[rule.check.score]
        if rule.score.is_number:
            value[hit] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)[hit]
        else:
            rows_hit = np.flatnonzero(hit)
            for row, name in zip(rows_hit.tolist(), column.take(pa.array(rows_hit)).to_pylist(), strict=True):
                said[row] = name
    return codes, value, said


def reasons_of(stage: Stage | type[Stage]) -> tuple[str, ...]:
    """Return every reason for which a stage may drop, in the order of its checks."""
    return tuple(dict.fromkeys(check.reason for check in stage.checks))


def early_rules(stage: Stage) -> list[Rule]:
    """Return the checks of a stage with the limits that are known before a document is read."""
    reasons, scores = list(reasons_of(stage)), {score.name: score for score in stage.scores}
    return [rule_of(stage, check, reasons.index(check.reason), scores[check.score]) for check in stage.checks]


def late_limits(stage: Stage) -> list[tuple[int, str, Percentile]]:
    """Return the limits of a stage that are measured: (position of the check, ``min`` or ``max``, limit)."""
    return [
        (position, end, limit)
        for position, check in enumerate(stage.checks)
        for end, limit in percentiles_of(stage, check).items()
    ]


def link_of(stage: Stage) -> str:
    """Return the stage's name in its chain: what it drops, its scores and its statistics go by it."""
    return stage.instance or stage.name


def score_column(stage: Stage, score: str) -> str:
    """Return the name of a score's column."""
    return f"{link_of(stage)}.{score}"


def columns_of(stage: Stage) -> dict[str, pa.DataType]:
    """Return all columns that a stage adds, with their types: its own, and one for each score."""
    return {**stage.columns, **{score_column(stage, score.name): score.type for score in stage.scores}}


def parameters(stage: Stage) -> dict[str, Any]:
    """Return the parameters of a stage as plain values, for the resolved recipe and the digest."""
    return {name: value for name, value in _plain(stage).items() if name != "instance"}


def _plain(stage: Stage) -> dict[str, Any]:
    kept = cast(Any, stage)
    return {one.name: plain_value(getattr(kept, one.name)) for one in dataclasses.fields(kept)}


def plain_value(value: Any) -> Any:
    """Return a parameter as TOML would have it: limits as tables, without what they leave at its default."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(plain_value(item) for item in value)
    return value


def failures_of(stage: Stage | type[Stage]) -> tuple[str, ...]:
    """Return every way in which a document may fail in ``stage``: its own, then those of any stage."""
    return (*stage.failures, *failing.FAILURES)


def text_of(batch: pa.RecordBatch) -> list[str]:
    """Return the texts of a batch as Python strings, an empty one for null."""
    return [text or "" for text in batch.column("text").to_pylist()]


def per_row(batch: pa.RecordBatch, measure: Callable[[str], float]) -> npt.NDArray[np.float64]:
    """Return ``measure`` of every text, as float64 of shape (rows,)."""
    return np.fromiter((measure(text) for text in text_of(batch)), np.float64, batch.num_rows)
