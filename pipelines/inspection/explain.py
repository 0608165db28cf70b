"""Single documents through a chain, without Beam: every score, the limits that apply, where each would have stopped.

The readers and ``stages.marking.mark`` are those of a run. Marks are taken off before the next stage, so that a
document is shown all stages, also those that it would not have come to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.inspection.wording import Limit, limits_of
from pipelines.late import Redecision
from pipelines.planning.labels import Labels
from pipelines.reading import without_textless
from stages.base import Stage, link_of, score_column
from stages.marking import live_domains, mark, unmarked


class Skip(NamedTuple):
    """Why a stage did not judge a document, and whether a run might have stopped it there."""

    why: str
    is_open: bool


NO_TEXT: Final = Skip("there is no text to judge", is_open=False)
BY_DOC_ID: Final = Skip("it goes by doc_id, which a run gives", is_open=True)


class End(NamedTuple):
    """What ended a document's way: as the columns of a table of verdicts."""

    dropped_by: str
    reason: str
    value: float | None
    failed: bool
    detail: str | None


class Asked(NamedTuple):
    """A limit as it applies to a document, and whether it drops it."""

    limit: Limit
    words: str
    number: float | None
    drops: bool


class Scored(NamedTuple):
    """A score of a document; None where the score does not apply to it."""

    name: str
    value: float | str | None
    limits: tuple[Asked, ...]


@dataclass(frozen=True)
class Step:
    """What a stage says of a document.

    Attributes:
        link: the stage's name in the chain.
        scores: its scores, none where it did not judge.
        end: its mark, None where the document passes.
        skipped: why it did not judge, None where it did.
    """

    link: str
    scores: tuple[Scored, ...]
    end: End | None
    skipped: Skip | None

    @property
    def is_open(self) -> bool:
        """Whether only a run can tell if the stage stops the document."""
        if self.skipped is not None:
            return self.skipped.is_open
        return any(asked.limit.is_unknown for score in self.scores for asked in score.limits)


@dataclass(frozen=True)
class Explained:
    """A document's way.

    Attributes:
        doc_id: its id, of a run where the source is one of a run's.
        url: its URL.
        offset: where the record is in the source.
        language: its language after the chain.
        domain: its domain, by the labels of the recipe.
        text: its text after the chain, None where there is none.
        steps: what the reader and the stages say, in order; only the reader of a record that it dropped or failed.
        end: what would have ended its way, None where the chain keeps it.
    """

    doc_id: int
    url: str | None
    offset: int
    language: str
    domain: str
    text: str | None
    steps: tuple[Step, ...]
    end: End | None

    @property
    def verdict(self) -> str:
        """What the chain alone says: ``kept``, ``dropped``, ``failed``, or ``open`` where only a run can tell."""
        if self.end is None:
            return "open" if self.open_links else "kept"
        return "failed" if self.end.failed else "dropped"

    @property
    def open_links(self) -> list[str]:
        """The stages of which only a run can tell whether they stop the document."""
        return [step.link for step in self.steps if step.is_open]

    def to_json(self, chars: int) -> dict[str, Any]:
        """Return it as plain values, with so many characters of the text."""
        return {
            "doc_id": self.doc_id,
            "url": self.url,
            "offset": self.offset,
            "language": self.language,
            "domain": self.domain,
            "verdict": self.verdict,
            "end": self.end and self.end._asdict(),
            "open": self.open_links,
            "text": self.text and self.text[:chars],
            "stages": [_step_json(step) for step in self.steps],
        }


def _step_json(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {"name": step.link, "scores": {one.name: one.value for one in step.scores}}
    asked = [one for score in step.scores for one in score.limits]
    found["checks"] = [
        {
            "reason": one.limit.check.reason,
            "score": one.limit.score.name,
            "asks": one.words,
            **({one.limit.end: one.number} if one.limit.end else {}),
            "drops": one.drops,
        }
        for one in asked
    ]
    return {**found, "end": step.end and step.end._asdict(), "skipped": step.skipped and step.skipped.why}


class _Pass(NamedTuple):
    """One stage's work on a batch: the batch after it, its marks, and why it skipped rows, by row."""

    stage: Stage
    marked: pa.RecordBatch
    skipped: list[Skip | None]


@dataclass(frozen=True)
class Explainer:
    """Takes batches through a chain.

    Attributes:
        reading: what the reader of the documents measures and drops.
        chain: the stages; models that are still to be fitted have no path.
        edits: the stages that edit or judge what deduplication leaves.
        labels: give documents their domains.
        cuts: the limits that a run measured, None where none did.
        unfitted: for stages whose models are still to be fitted, by link: the languages of these.
        has_doc_ids: whether doc_ids are a run's.
    """

    reading: Stage
    chain: tuple[Stage, ...]
    labels: Labels
    cuts: pa.Table | None = None
    unfitted: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    has_doc_ids: bool = False
    edits: tuple[Stage, ...] = ()

    def explain(self, batch: pa.RecordBatch) -> Iterator[Explained]:
        """Yield what becomes of each record of a batch, as a reader gives it, in order."""
        batch = self.labels.with_domain(batch)
        readable = np.flatnonzero(pc.is_null(batch.column("dropped_by")).to_numpy(zero_copy_only=False))
        found = self._judged(batch.take(pa.array(readable))) if len(readable) else iter(())
        read = cast(list[Step], self._steps(_Pass(self.reading, batch, [None] * batch.num_rows), batch))
        is_readable = np.zeros(batch.num_rows, np.bool_)
        is_readable[readable] = True
        for row, ours in enumerate(is_readable.tolist()):
            one = next(found) if ours else _explained(batch, row, (), _end(batch, row))
            yield dataclasses.replace(one, steps=(read[row], *one.steps))

    def _judged(self, batch: pa.RecordBatch) -> Iterator[Explained]:
        ends: list[End | None] = [None] * batch.num_rows
        judged, passes, ends = self._through(self.chain, batch, ends)
        batch, edited, ends = self._through(self.edits, judged, self._late(judged, ends))
        said = [*(self._steps(one, judged) for one in passes), *(self._steps(one, batch) for one in edited)]
        steps = list(zip(*said, strict=True)) or [()] * batch.num_rows
        for row, end in enumerate(ends):
            yield _explained(batch, row, tuple(step for step in steps[row] if step is not None), end)

    def _through(
        self, stages: Sequence[Stage], batch: pa.RecordBatch, ends: Sequence[End | None]
    ) -> tuple[pa.RecordBatch, list[_Pass], list[End | None]]:
        """Apply stages one after another; return the batch after them, what each did, and the documents' ends."""
        passes, found = [], list(ends)
        for stage in stages:
            passes.append(self._applied(stage, batch, found))
            marked = passes[-1].marked
            found = [end or _end(marked, row) for row, end in enumerate(found)]
            batch = unmarked(marked)
        return batch, passes, found

    def _applied(self, stage: Stage, batch: pa.RecordBatch, ends: Sequence[End | None]) -> _Pass:
        skipped = self._skipped(stage, batch, ends)
        aside = pa.array([why is not None for why in skipped])
        place = batch.schema.get_field_index("dropped_by")
        # What is marked is not shown to a stage.
        hidden = pc.if_else(aside, pa.scalar(link_of(stage)), batch.column("dropped_by"))
        marked = mark(stage, batch.set_column(place, batch.schema.field(place), hidden))
        shown = pc.if_else(aside, pa.scalar(None, pa.string()), marked.column("dropped_by"))
        place = marked.schema.get_field_index("dropped_by")
        return _Pass(stage, marked.set_column(place, marked.schema.field(place), shown), skipped)

    def _skipped(self, stage: Stage, batch: pa.RecordBatch, ends: Sequence[End | None]) -> list[Skip | None]:
        """Return why a stage is not shown a row, None for those that it is shown."""
        why: list[Skip | None] = [None] * batch.num_rows
        pending = self.unfitted.get(link_of(stage), frozenset())
        has_text = batch.column("text").is_valid().to_pylist()
        languages, domains = batch.column("language").to_pylist(), live_domains(stage, batch).tolist()
        for row, end in enumerate(ends):
            if not domains[row]:
                why[row] = Skip(f"it judges {', '.join(stage.domains)} only", is_open=False)
            elif "doc_id" in stage.needs and not self.has_doc_ids:
                why[row] = BY_DOC_ID
            elif languages[row] in pending:
                why[row] = Skip(f"its model of {languages[row]} is still to be fitted by a run", is_open=True)
            elif end is not None and "text" in stage.needs and not has_text[row]:
                # A run would not have come here; one in which nothing extracts text judges what has none.
                why[row] = NO_TEXT
        return why

    def _late(self, batch: pa.RecordBatch, ends: Sequence[End | None]) -> list[End | None]:
        """Add the ends of documents that no stage stopped: of those left without text, or beyond measured limits."""
        alive = np.array([end is None for end in ends], np.bool_)
        rows = np.flatnonzero(alive)
        left = without_textless(batch.take(pa.array(rows)))
        if self.cuts is not None:
            left = Redecision(self.chain, is_tightened=False).late(pa.Table.from_batches([left]), self.cuts)
        found = list(ends)
        for place, row in enumerate(rows.tolist()):
            found[row] = _end(left, place)
        return found

    def _steps(self, done: _Pass, final: pa.RecordBatch) -> list[Step | None]:
        """Return what a stage says of each row; None where it has nothing to say."""
        stage, marked, skipped = done
        limits = list(limits_of(stage, self.cuts))
        hits = [_hits(one, score_column(stage, one.score.name), marked, final) for one in limits]
        columns = {one.name: marked.column(score_column(stage, one.name)).to_pylist() for one in stage.scores}
        found: list[Step | None] = []
        for row in range(marked.num_rows):
            end = _end(marked, row)
            if skipped[row] is not None or not (stage.scores or stage.checks or end):
                silent = skipped[row] is None
                found.append(None if silent else Step(link_of(stage), (), None, skipped[row]))
                continue
            scores = []
            for score in stage.scores:
                asked = [
                    _asked(limit, hit[row], _groups(final if limit.percentile else marked, row))
                    for limit, hit in zip(limits, hits, strict=True)
                    if limit.score.name == score.name
                ]
                scores.append(Scored(score.name, columns[score.name][row], tuple(asked)))
            found.append(Step(link_of(stage), tuple(scores), end, None))
        return found


def _hits(limit: Limit, column: str, marked: pa.RecordBatch, final: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    # A limit that is measured is applied after the chain, by the language that a document then has.
    rows = final if limit.percentile else marked
    groups = {name: rows.column(name) for name in limit.rule().groups()}
    return limit.rule().hits(marked.column(column), groups)


def _asked(limit: Limit, drops: bool, groups: Mapping[str, str]) -> Asked:
    return Asked(limit, limit.words_for(groups), limit.number_for(groups), bool(drops))


def _groups(batch: pa.RecordBatch, row: int) -> dict[str, str]:
    return {name: batch.column(name)[row].as_py() for name in ("language", "domain")}


def _end(rows: pa.RecordBatch | pa.Table, row: int) -> End | None:
    if not rows.column("dropped_by")[row].is_valid:
        return None
    return End(*(rows.column(name)[row].as_py() for name in End._fields))


def _explained(batch: pa.RecordBatch, row: int, steps: tuple[Step, ...], end: End | None) -> Explained:
    known = {
        name: batch.column(name)[row].as_py() for name in ("doc_id", "url", "offset", "language", "domain", "text")
    }
    return Explained(**known, steps=steps, end=end)
