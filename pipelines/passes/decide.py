"""*decide*: the limits that are measured, and what they drop.

    histograms  counts scores of the documents that no early check dropped      (one unit per split)
    reference   counts scores of reference text                                 (one unit per limit that names any)
    decide      turns the merged counts into cuts                               (in the driver)
    late        marks what the cuts drop, and what early limits that were tightened since drop (one unit per split)

Scores were rounded before they are counted, so cuts are exact over the whole run and independent of its splits. No text
of the run is read. A run has only those passes that its limits ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.base import ALL, DriverPass, Inputs, UnitPass
from pipelines.beam.work_list import Output, Unit
from pipelines.chain import build_chain, chain_section
from pipelines.late import (
    CUTS,
    REMARK,
    Measure,
    Redecision,
    added_up,
    counted_section,
    histogram,
    late_section,
    limits_section,
    measures_of,
    remarks,
)
from pipelines.passes.fit_lm import model_uris
from pipelines.planning.labels import Labelling
from pipelines.tables import publish_table, read_schema, read_table
from pipelines.workspace import Job, Workspace
from shards.errors import UserError
from shards.files import hash_file
from stages.base import Stage, link_of
from stages.limits import percentile_step
from stages.marking import mark, unmarked
from stages.readers.base import BatchBuilder, Row, Source

MOST_LINE_BYTES: Final = 1 << 20


def _tightened(redecision: Redecision) -> list[Any]:
    return limits_section(redecision.chain) if redecision.is_tightened else []


@dataclass(frozen=True)
class Histograms(UnitPass):
    """One unit per split: its documents by the scores that percentiles are measured on."""

    name: ClassVar[str] = "histograms"

    verdicts: Output
    redecision: Redecision
    labels: Labelling
    """The domains, which are joined from the plan."""

    def section(self) -> Any:
        """Return what is counted, early limits that were tightened since, and the labels."""
        counted = [one for one in measures_of(self.redecision.chain) if not one.limit.of]
        return [counted_section(counted), _tightened(self.redecision), self.labels.digest]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the splits."""
        return list(inputs.units(self.verdicts))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the splits."""
        return _splits(inputs, pending)

    def work(self, job: Job, unit: Unit) -> None:
        """Count a split."""
        judged = _judged(job, unit, self.verdicts, self.redecision, self.labels)
        counted = self.redecision.histograms(self.redecision.early(judged))
        job.commit(unit.name, {}, tables={"histograms": counted})


def _splits(inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
    for name in pending:
        yield Unit(name, inputs.of_unit(name), inputs.sources(name))


def _judged(job: Job, unit: Unit, verdicts: Output, redecision: Redecision, labels: Labelling) -> pa.Table:
    entry = unit.file(verdicts)
    columns = redecision.columns(read_schema(job.store, entry).names)
    return labels.labels(unit.detail).join(read_table(job.store, entry, columns), ["domain"])


@dataclass(frozen=True)
class Reference(UnitPass):
    """One unit per limit that is measured on reference text: the scores of its lines, each a document.

    A line goes through the chain up to the stage whose limit it is, and no check ends its way: so the language stage
    gives it its language.
    """

    name: ClassVar[str] = "reference"
    calls_native: ClassVar[bool] = True

    workspace: Workspace
    chain: tuple[Stage, ...]
    """The stages, before any model is fitted."""
    texts: tuple[tuple[str, ...], ...]
    """The files of reference text of each limit that names any, in the order of ``measures_of``."""
    models: Output | None

    def section(self) -> Any:
        """Return what is counted, the chain, and what the files hold; their paths are not part of it."""
        hashes = [[hash_file(Path(path))[0] for path in paths] for paths in self.texts]
        counted = [one for one in measures_of(self.chain) if one.limit.of]
        return [counted_section(counted), chain_section(self.chain), hashes]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the limits, by their positions."""
        return [f"{place:03d}" for place in range(len(self.texts))]

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the limits, each with all models that the run fits."""
        models = {self.models: tuple(inputs.files(self.models).values())} if self.models else {}
        for name in pending:
            yield Unit(name, models, model_uris(self.workspace, inputs, self.models))

    def work(self, job: Job, unit: Unit) -> None:
        """Measure one limit's reference text."""
        for entry in unit.files(self.models) if self.models else ():
            job.store.local_copy(entry)
        # Reference text has no domain: it is of those that a stage judges.
        chain = [replace(cast(Any, stage), domains=()) for stage in build_chain(self.workspace, unit.detail)]
        measure = [one for one in measures_of(chain) if one.limit.of][int(unit.name)]
        link = link_of(measure.stage)
        rows = added_up(_measured(chain, measure, self.texts[int(unit.name)]))
        if not rows.num_rows:
            raise UserError(
                f"no line of the reference text has a score {measure.score}",
                place=f"recipe, stage {link}: {', '.join(measure.limit.of)}",
                remedy="Name text that the stage can score, such as one in a language with a model",
            )
        job.commit(unit.name, {}, tables={"histograms": rows})


def _measured(chain: Sequence[Stage], measure: Measure, paths: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the histograms of reference text, batch by batch."""
    for batch in reference_batches(paths):
        for stage in chain:
            batch = unmarked(mark(stage, batch))
            if stage is measure.stage:
                break
        yield histogram(measure, pa.Table.from_batches([batch]))


def reference_batches(paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the lines of UTF-8 text files that are not empty, each as a document, in batches as a reader makes them."""
    builder = BatchBuilder(Source(0, "reference text"))
    for path in paths:
        with open(path, "rb") as lines:
            while line := lines.readline(MOST_LINE_BYTES):
                text = line.decode("utf-8", "replace").strip()
                if text and (full := builder.add(Row(0, text.encode()))) is not None:
                    yield full
    if (last := builder.flush()) is not None:
        yield last


@dataclass(frozen=True)
class Decide(DriverPass):
    """The cuts: for each limit that is measured, and each group of it, the step of the score at its percentile.

    Attributes:
        counted: scores of the run, by split; None where no limit is measured on it.
        reference: scores of reference text; None where no limit names any.
        redecision: the chain, whose limits they are.
    """

    name: ClassVar[str] = "decide"

    counted: Output | None
    reference: Output | None
    redecision: Redecision

    def section(self) -> Any:
        """Return the limits."""
        return late_section(self.redecision.chain)

    def work(self, job: Job, inputs: Inputs) -> None:
        """Merge the counts and cut."""
        tables = [inputs.table(output) for output in (self.counted, self.reference) if output is not None]
        counted = added_up(tables)
        rows = [row for one in measures_of(self.redecision.chain) for row in _cuts(one, counted)]
        entry = publish_table(job.store, pa.Table.from_pylist(rows, CUTS), self.name, "cuts")
        job.commit(ALL, {"cuts": entry})


def _cuts(measure: Measure, counted: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of ``CUTS`` of a limit, from sorted counts."""
    key = dict(zip(("link", "check", "end"), measure.key, strict=True))
    for name, value in key.items():
        counted = counted.filter(pc.equal(counted.column(name), value))
    found = []
    for group in pc.unique(counted.column("group")).to_pylist():
        is_mine = pc.is_null(counted.column("group")) if group is None else pc.equal(counted.column("group"), group)
        mine = counted.filter(is_mine)
        steps, rows = mine.column("step").to_pylist(), mine.column("rows").to_pylist()
        found.append({**key, "group": group, "step": percentile_step(steps, rows, measure.limit.percentile)})
    return found


@dataclass(frozen=True)
class Late(UnitPass):
    """One unit per split: the marks that are laid over what judging found."""

    name: ClassVar[str] = "late"

    verdicts: Output
    cuts: Output | None
    redecision: Redecision
    labels: Labelling
    """The domains, which are joined from the plan."""

    def section(self) -> Any:
        """Return the limits, and the labels."""
        return [late_section(self.redecision.chain), _tightened(self.redecision), self.labels.digest]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the splits."""
        return list(inputs.units(self.verdicts))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the splits."""
        return _splits(inputs, pending)

    def work(self, job: Job, unit: Unit) -> None:
        """Mark a split's documents."""
        judged = _judged(job, unit, self.verdicts, self.redecision, self.labels)
        cuts = read_table(job.store, unit.file(self.cuts)) if self.cuts else CUTS.empty_table()
        found = remarks(judged, self.redecision.late(self.redecision.early(judged), cuts))
        entry = publish_table(job.store, found.cast(REMARK), "late/marks", unit.name)
        job.commit(unit.name, {"marks": entry})
