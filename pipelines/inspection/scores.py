"""Histograms of every score of a run: from counts in the markers of *drops* and *edits*, or by group from verdicts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.chain import build_chain, build_edits, fitted_languages
from pipelines.inspection.verdicts import verdicts
from pipelines.inspection.wording import Limit, limits_of
from pipelines.late import CUTS
from pipelines.passes.score_counts import SCORES, added_up, count_scores, end_of
from pipelines.reading import reading_of
from pipelines.run import Run
from pipelines.tables import one_array, read_table
from pipelines.view import EDITS_PASS
from shards.errors import IncompleteError, UserError
from shards.marker import small_table
from stages.base import Stage, link_of, score_column
from stages.limits import Bound, percentile_step
from stages.scores import Score

QUANTILES: Final = (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0)
"""Percent of the documents."""


@dataclass(frozen=True)
class Bin:
    """Documents whose score is in a bin.

    Attributes:
        start: the smallest step in it, of a number.
        name: the name, of a category; None for the rare ones together.
        rows: documents.
        dropped: those of them that the stage dropped by this score.
    """

    start: int | None
    name: str | None
    rows: int
    dropped: int


@dataclass(frozen=True)
class Histogram:
    """How many documents have which score.

    Attributes:
        link: the stage's name in the chain.
        score: the score.
        column: its column in the tables of verdicts.
        limits: what the checks of the stage ask of it.
        bins: numbers ascending; names by how frequent they are, the rare ones last. None is empty.
    """

    link: str
    score: Score
    column: str
    limits: tuple[Limit, ...] = ()
    bins: tuple[Bin, ...] = field(default=())

    @property
    def rows(self) -> int:
        """Documents with the score: those that the stage judged, as far as the score applies to them."""
        return sum(one.rows for one in self.bins)

    @property
    def dropped(self) -> int:
        """Documents that the stage dropped by it."""
        return sum(one.dropped for one in self.bins)

    def quantile(self, percent: float) -> int | None:
        """Return the start of the bin that holds a percentile of a number; None where there is no document."""
        if not self.score.is_number or not self.bins:
            return None
        starts = [one.start for one in self.bins if one.start is not None]
        return percentile_step(starts, [one.rows for one in self.bins], percent)

    def beyond(self, limit: Limit) -> tuple[int, int] | None:
        """Return the fewest and the most documents that may be beyond a limit: they differ where it cuts a bin in two.

        None for names, and for a limit that is not the same for all documents: a bin does not know its documents.
        """
        if limit.end is None or limit.bound is None or limit.bound.by is not None or limit.bound.default is None:
            return None
        step, fewest, most = limit.bound.default, 0, 0
        for one in self.bins:
            assert one.start is not None
            end = end_of(self.score, one.start)
            last = None if end is None else end - 1
            if limit.end == "min":
                whole, part = last is not None and last < step, one.start < step
            else:
                whole, part = one.start > step, last is None or last > step
            fewest, most = fewest + one.rows * whole, most + one.rows * part
        return fewest, most

    def to_json(self) -> dict[str, Any]:
        """Return the histogram as plain values."""
        found: dict[str, Any] = {
            "stage": self.link,
            "score": self.score.name,
            "scale": self.score.scale,
            "meaning": self.score.meaning,
            "documents": self.rows,
            "dropped": self.dropped,
            "limits": [self._limit_json(one) for one in self.limits],
        }
        if self.score.is_number:
            quantiles = {percent: self.quantile(percent) for percent in QUANTILES}
            found["quantiles"] = {
                f"{percent:g}": self.score.value_of(step) for percent, step in quantiles.items() if step is not None
            }
        return {**found, "bins": [self._bin_json(one) for one in self.bins]}

    def _limit_json(self, limit: Limit) -> dict[str, Any]:
        beyond = self.beyond(limit)
        return {**limit.to_json(), **({} if beyond is None else {"beyond": list(beyond)})}

    def _bin_json(self, one: Bin) -> dict[str, Any]:
        counts = {"documents": one.rows, "dropped": one.dropped}
        if one.start is None:
            return {"name": one.name, **counts}
        end = end_of(self.score, one.start)
        return {
            "from": self.score.value_of(one.start),
            "to": None if end is None else self.score.value_of(end),
            **counts,
        }


def histograms(run: Run, wanted: str = "all") -> list[Histogram]:
    """Return the histograms of a run's scores, in the order of its chain, from its markers alone.

    Args:
        run: a run that has every verdict.
        wanted: a stage, a score, ``STAGE.SCORE``, or ``all``.

    Raises:
        UserError: if the chain has no such score.
        IncompleteError: if the run was made by a version that counted no scores.
    """
    declared = _declared(run, wanted)
    counted = _merged(_of_markers(run))
    return [replace(one, bins=_bins(counted.get(one.column, ()))) for one in declared]


def histograms_by(run: Run, wanted: str, by: str) -> dict[str, list[Histogram]]:
    """Return the histograms of each language or domain, the names sorted: from the verdicts, split by split.

    Args:
        run: a run that has every verdict.
        wanted: as for ``histograms``.
        by: ``language`` or ``domain``.

    Raises:
        UserError: if the chain has no such score.
    """
    declared, chain = _declared(run, wanted), run_chain(run)
    totals: dict[str, pa.Table] = {}
    for table in verdicts(run, [*_FATE, *(one.column for one in declared)]):
        groups = one_array(table.column(by))
        for name in sorted(pc.unique(groups).to_pylist()):
            counted = count_scores(table.filter(pc.equal(groups, name)), chain)
            totals[name] = added_up([totals.get(name, SCORES.empty_table()), counted])
    found = {name: _merged([total]) for name, total in sorted(totals.items())}
    return {
        name: [
            replace(one, bins=_bins(counted.get(one.column, ())), limits=tuple(_limits_of_group(one, by, name)))
            for one in declared
        ]
        for name, counted in found.items()
    }


def _limits_of_group(one: Histogram, by: str, name: str) -> Iterator[Limit]:
    """Yield the limits of a score for one language or domain, whose own number is then known."""
    for limit in one.limits:
        if limit.bound is None or limit.bound.by != by:
            yield limit
        elif (step := limit.bound.of_group(name)) is not None:
            yield replace(limit, bound=Bound(default=step))


_FATE: Final = ("doc_id", "source_index", "host", "language", "dropped_by", "reason", "failed")


def _declared(run: Run, wanted: str) -> list[Histogram]:
    """Return the scores that are wanted, with their limits and without a document."""
    chain, cuts, found = run_chain(run), run_cuts(run), []
    names = [(link_of(stage), score.name, score_column(stage, score.name)) for stage in chain for score in stage.scores]
    if wanted != "all" and not any(wanted in name for name in names):
        known = sorted({part for name in names for part in name})
        near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.0)
        remedy = f"Did you mean {near[0]!r}?" if near else "Its chain measures nothing"
        raise UserError(f"the run has no score {wanted!r}", place=run.root, remedy=remedy)
    for stage in chain:
        limits = list(limits_of(stage, cuts))
        for score in stage.scores:
            link, column = link_of(stage), score_column(stage, score.name)
            if wanted in ("all", link, score.name, column):
                own = tuple(one for one in limits if one.score.name == score.name)
                found.append(Histogram(link, score, column, own))
    return found


def run_chain(run: Run) -> list[Stage]:
    """Return the stages of a run, to be asked what they declare: without the models that it fitted.

    What its readers measure comes first. Those of [[edits]] come last, as far as the run has come to them.
    """
    pending = dict.fromkeys((one.language for one in fitted_languages(run.recipe)), "")
    return [
        reading_of(run.recipe.sources),
        *build_chain(run.workspace, pending),
        *(build_edits(run.workspace, pending) if run.has(EDITS_PASS) else ()),
    ]


def run_cuts(run: Run) -> pa.Table:
    """Return the limits that a run has measured."""
    if not run.has("decide"):
        return CUTS.empty_table()
    return pa.concat_tables([read_table(run.store, entry) for entry in run.files("decide", "cuts").values()])


def _of_markers(run: Run) -> Iterator[pa.Table]:
    parts = (part for name in ("drops", EDITS_PASS) if run.has(name) for part in run.manifest(name).tables())
    for part in parts:
        if "scores" not in part.schema.names:
            raise IncompleteError(
                "scores are not counted in this run: another version made it",
                place=run.root,
                remedy="Run the recipe again; nothing is judged again for it",
            )
        yield small_table(part, "scores").select(SCORES.names).cast(SCORES)


def _merged(counted: Iterable[pa.Table]) -> dict[str, list[Mapping[str, Any]]]:
    """Add counts up, a table at a time, and return the rows of each score."""
    total = added_up(counted)
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in total.to_pylist():
        found.setdefault(row["score"], []).append(row)
    return found


def _bins(rows: Sequence[Mapping[str, Any]]) -> tuple[Bin, ...]:
    found = [Bin(row["bin"], row["name"], row["rows"], row["dropped"]) for row in rows]
    rare = (one.start is None and one.name is None for one in found)
    ranked = sorted(
        zip(rare, found, strict=True),
        key=lambda one: (one[0], one[1].start if one[1].start is not None else -one[1].rows, one[1].name or ""),
    )
    return tuple(one for _, one in ranked)
