"""Limits applied to stored scores: percentiles, and early limits that were tightened after judging.

No text is read for it. Early checks come first, in chain order, as if the chain had judged with the new limits; then
all late checks together, of which the first in chain order gives the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.reading import NOT_EXTRACTED
from pipelines.tables import one_array, one_batch
from shards.schema import UNKNOWN_LANGUAGE
from stages.base import Stage, decided, early_rules, late_limits, link_of, parameters, plain_value, score_column
from stages.checks import KEPT, Rule
from stages.limits import GROUPS, Bound, Percentile
from stages.marking import live_domains
from stages.readers.reading import READ

LATE: Final = ":late"
"""What a link is called that applies the measured limits of a stage, after the stage's name."""

HISTOGRAM: Final = pa.schema(
    [
        ("link", pa.string()),
        ("check", pa.int32()),
        ("end", pa.string()),
        ("group", pa.string()),
        ("step", pa.int64()),
        ("rows", pa.int64()),
    ]
)
"""Documents by the step of a score, for each limit that is measured; ``group`` is null where it is one for all."""

CUTS: Final = pa.schema([field for field in HISTOGRAM if field.name != "rows"])
"""The limits that were measured, in steps."""

REMARK: Final = pa.schema(
    [
        pa.field("doc_id", pa.int64(), nullable=False),
        pa.field("dropped_by", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("detail", pa.string()),
    ]
)
"""Marks that are laid over verdicts."""


class Measure(NamedTuple):
    """A limit that is measured: of which stage and check, and which end of it."""

    stage: Stage
    check: int
    end: str
    limit: Percentile

    @property
    def score(self) -> str:
        """The column of the score that it is of."""
        return score_column(self.stage, self.stage.checks[self.check].score)

    @property
    def key(self) -> tuple[str, int, str]:
        """Its key in tables: (link, check, end)."""
        return link_of(self.stage), self.check, self.end


def measures_of(chain: Sequence[Stage]) -> list[Measure]:
    """Return the limits of a chain that are measured, in order."""
    return [Measure(stage, *found) for stage in chain for found in late_limits(stage)]


def late_section(chain: Sequence[Stage]) -> list[Any]:
    """Return what of a chain decides which documents are dropped late, for a digest: limits that are measured."""
    reasons = [one.stage.checks[one.check].reason for one in measures_of(chain)]
    return [
        [*one.key, one.score, reason, plain_value(one.limit)]
        for one, reason in zip(measures_of(chain), reasons, strict=True)
    ]


def counted_section(measures: Sequence[Measure]) -> list[Any]:
    """Return what histograms depend on, for a digest: which scores are counted, and by what; no percentile."""
    return [[*one.key, one.score, one.limit.by] for one in measures]


def limits_section(chain: Sequence[Stage]) -> list[Any]:
    """Return all limits of a chain, for a digest."""
    return [[link_of(stage), stage.domains, _limits(stage)] for stage in chain]


def _limits(stage: Stage) -> dict[str, Any]:
    values = parameters(stage)
    named = sorted({name.partition(".")[0] for check in stage.checks for name in check.parameters()})
    return {name: values[name] for name in named}


def language_setter(chain: Sequence[Stage]) -> int:
    """Return the position of the first stage that sets the language of documents, 0 if none does."""
    return next((place for place, stage in enumerate(chain) if stage.known_languages() is not None), 0)


def language_setters(chain: Sequence[Stage], batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the position of the first stage that sets the language of each row, int64 of (rows,); 0 if none does."""
    found = np.zeros(batch.num_rows, np.int64)
    for place in reversed(range(len(chain))):
        if chain[place].known_languages() is not None:
            found[live_domains(chain[place], batch)] = place
    return found


def score_columns(chain: Sequence[Stage]) -> list[str]:
    """Return the columns of all scores of a chain."""
    return [score_column(stage, score.name) for stage in chain for score in stage.scores]


@dataclass(frozen=True)
class Redecision:
    """Marks a verdict table anew.

    Attributes:
        chain: the stages, with the limits that are wanted.
        is_tightened: whether early limits differ from those that it was judged with.
    """

    chain: tuple[Stage, ...]
    is_tightened: bool

    def columns(self, had: Sequence[str]) -> list[str]:
        """Return the columns of a verdict table that it needs, out of those it has."""
        wanted = score_columns(self.chain) if self.is_tightened else [one.score for one in measures_of(self.chain)]
        base = ("doc_id", "source_index", "host", "language", "dropped_by", "reason", "value", "failed", "detail")
        return [name for name in dict.fromkeys([*base, *wanted]) if name in had]

    def early(self, judged: pa.Table) -> pa.Table:
        """Return a verdict table, with its domains, as the early limits of the chain mark it."""
        if not self.is_tightened:
            return judged
        batch = one_batch(judged)
        order = {link_of(stage): place for place, stage in enumerate(self.chain)}
        at = np.array([order.get(name, -1) for name in batch.column("dropped_by").to_pylist()], np.int64)
        alive = pc.is_null(batch.column("dropped_by")).to_numpy(zero_copy_only=False)
        # A reader's drops come before every stage, but for what the chain left without a text.
        at[alive | _is_textless(batch)] = len(self.chain)
        failed_at = np.where(batch.column("failed").to_numpy(zero_copy_only=False), at, -1)
        marks = _Marks(batch.num_rows)
        setters = language_setters(self.chain, batch)
        for place, stage in enumerate(self.chain):
            shown = (at >= place) & (failed_at != place) & ~marks.is_marked & live_domains(stage, batch)
            rows = np.flatnonzero(shown)
            if len(rows) and stage.checks:
                scores, groups = _scores(stage, batch, rows)
                is_before = pa.array(place < setters[rows])
                # It knew no language yet.
                groups["language"] = pc.if_else(is_before, UNKNOWN_LANGUAGE, groups["language"])
                marks.add(rows, stage, early_rules(stage), (scores, groups), link_of(stage))
        return marks.over(judged)

    def late(self, judged: pa.Table, cuts: pa.Table) -> pa.Table:
        """Return ``judged``, as ``early`` gives it, with the marks of the measured limits."""
        batch = one_batch(judged)
        alive = pc.is_null(batch.column("dropped_by")).to_numpy(zero_copy_only=False)
        marks = _Marks(batch.num_rows)
        for stage in self.chain:
            rows = np.flatnonzero(alive & ~marks.is_marked)
            rules = late_rules(stage, cuts)
            if len(rows) and rules:
                marks.add(rows, stage, rules, _scores(stage, batch, rows, rules), link_of(stage) + LATE)
        return marks.over(judged)

    def histograms(self, judged: pa.Table) -> pa.Table:
        """Count the scores that limits are measured on, of a table as ``early`` gives it."""
        alive = judged.filter(pc.is_null(judged.column("dropped_by")))
        measured = [one for one in measures_of(self.chain) if not one.limit.of]
        return pa.concat_tables([HISTOGRAM.empty_table(), *(histogram(one, alive) for one in measured)])


def histogram(measure: Measure, rows: pa.Table) -> pa.Table:
    """Count the documents of a table by score, and by group where the limit asks for it; those without one apart."""
    if measure.score not in rows.column_names:
        return HISTOGRAM.empty_table()
    rows = rows.filter(pc.is_valid(rows.column(measure.score)))
    stage, limit = measure.stage, measure.limit
    score = next(one for one in stage.scores if one.name == stage.checks[measure.check].score)
    steps = pa.array(score.steps(one_array(rows.column(measure.score))))
    group = one_array(rows.column(limit.by)) if limit.by else pa.nulls(rows.num_rows, pa.string())
    counted = pa.table({"group": group, "step": steps}).group_by(["group", "step"]).aggregate([([], "count_all")])
    counted = counted.sort_by([("group", "ascending"), ("step", "ascending")])
    link, check, end = measure.key
    named = [
        pa.repeat(pa.scalar(value, HISTOGRAM.field(name).type), counted.num_rows)
        for name, value in (("link", link), ("check", check), ("end", end))
    ]
    columns = [*named, counted.column("group"), counted.column("step"), counted.column("count_all")]
    return pa.table(columns, schema=HISTOGRAM)


def added_up(histograms: Iterable[pa.Table]) -> pa.Table:
    """Return the sum of tables in the schema ``HISTOGRAM``, a row for each step of a group, sorted."""
    keys = CUTS.names
    total = HISTOGRAM.empty_table()
    for table in histograms:
        both = pa.concat_tables([total, table.select(HISTOGRAM.names)])
        total = both.group_by(keys).aggregate([("rows", "sum")]).rename_columns(HISTOGRAM.names).cast(HISTOGRAM)
    return total.sort_by([(key, "ascending") for key in keys])


def late_rules(stage: Stage, cuts: pa.Table) -> list[Rule]:
    """Return the checks of a stage whose limits were measured, with these limits."""
    rules = early_rules(stage)
    found: dict[int, Rule] = {}
    for position, end, limit in late_limits(stage):
        bound = _bound(cuts, (link_of(stage), position, end), limit)
        rule = found.get(position) or dataclasses.replace(rules[position], least=None, greatest=None, drops_null=False)
        if end == "min":
            found[position] = dataclasses.replace(rule, least=bound)
        else:
            found[position] = dataclasses.replace(rule, greatest=bound)
    return [found[position] for position in sorted(found)]


def _bound(cuts: pa.Table, key: tuple[str, int, str], limit: Percentile) -> Bound:
    rows = [row for row in cuts.to_pylist() if (row["link"], row["check"], row["end"]) == key]
    if limit.by is None:
        return Bound(default=rows[0]["step"] if rows else None)
    return Bound(limit.by, {row["group"]: row["step"] for row in rows})


class _Marks:
    """Marks of some rows of a table."""

    def __init__(self, rows: int) -> None:
        self.is_marked = np.zeros(rows, np.bool_)
        self._columns: dict[str, list[Any]] = {name: [None] * rows for name in ("dropped_by", "reason", "detail")}
        self._value = np.full(rows, np.nan)

    def add(
        self,
        rows: npt.NDArray[np.int64],
        stage: Stage,
        rules: Sequence[Rule],
        given: tuple[Mapping[str, pa.Array], Mapping[str, pa.Array]],
        link: str,
    ) -> None:
        """Decide rows by rules, and mark those that are dropped."""
        scores, groups = given
        codes, value, detail = decided(rules, scores, groups, len(rows))
        hit = np.flatnonzero(codes != KEPT)
        self.is_marked[rows[hit]] = True
        self._value[rows[hit]] = value[hit]
        reasons = stage.reasons
        for place in hit.tolist():
            row = int(rows[place])
            said = {"dropped_by": link, "reason": reasons[codes[place]], "detail": detail[place]}
            for name, text in said.items():
                self._columns[name][row] = text

    def over(self, judged: pa.Table) -> pa.Table:
        """Return a table with these marks in place of its own."""
        marked = pa.array(self.is_marked)
        values: dict[str, Any] = {name: pa.array(texts, pa.string()) for name, texts in self._columns.items()}
        values["value"] = pa.array(self._value, mask=np.isnan(self._value))
        values["failed"] = pa.array(np.zeros(len(self.is_marked), np.bool_))
        for name, own in values.items():
            if name in judged.column_names:
                column = pc.if_else(marked, own, judged.column(name))
                judged = judged.set_column(judged.schema.get_field_index(name), judged.schema.field(name), column)
        return judged


def remarks(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the marks of ``after`` that ``before`` does not have: the same documents in the same order."""
    changed = np.zeros(before.num_rows, np.bool_)
    for name in ("dropped_by", "reason"):
        same = pc.equal(before.column(name), after.column(name))
        # Null where either is: equal only if both are.
        both = pc.and_(pc.is_null(before.column(name)), pc.is_null(after.column(name)))
        changed |= ~np.asarray(pc.coalesce(same, both).to_numpy(), np.bool_)
    return after.filter(pa.array(changed)).select(REMARK.names).cast(REMARK)


def _scores(
    stage: Stage, batch: pa.RecordBatch, rows: npt.NDArray[np.int64], rules: Sequence[Rule] | None = None
) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """Return (the scores of some rows that checks compare, the groups by which limits differ)."""
    wanted = {rule.check.score for rule in rules or early_rules(stage)}
    scores = {}
    for score in stage.scores:
        if score.name in wanted:
            name = score_column(stage, score.name)
            had = batch.column(name).take(pa.array(rows)) if name in batch.schema.names else None
            scores[score.name] = pa.nulls(len(rows), score.type) if had is None else had
    return scores, {name: batch.column(name).take(pa.array(rows)) for name in GROUPS}


def _is_textless(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    found = pc.and_kleene(pc.equal(batch.column("dropped_by"), READ), pc.equal(batch.column("detail"), NOT_EXTRACTED))
    return np.asarray(found.fill_null(fill_value=False).to_numpy(zero_copy_only=False), np.bool_)
