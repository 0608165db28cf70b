"""*edits*: a second chain over the documents that are left after deduplication, which may change their text.

Stages that edit come first in the order of documents: what they change goes into edit files, and no text is written
again. All other stages judge what is left. What a stage says besides, such as a language, is for those behind it alone.
A recipe without [[edits]] has no such pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam import meter
from pipelines.beam.attempts import Attempts
from pipelines.beam.base import Builder, Inputs, UnitPass
from pipelines.beam.isolation import isolated_judge
from pipelines.beam.work_list import Output, Unit
from pipelines.chain import build_edits, chain_section
from pipelines.late import score_columns
from pipelines.passes import characters
from pipelines.passes.drops import FATE, SCHEMA
from pipelines.passes.fit_lm import model_uris
from pipelines.passes.score_counts import SCORES, added_up, count_scores
from pipelines.planning.labels import Labelling
from pipelines.tables import TableFile, group_counts, publish_table, read_table
from pipelines.view import EDIT_FILE, EDITS_PASS, ViewFiles, documents
from pipelines.workspace import Job, Workspace
from shards.errors import UserError
from shards.schema import DOCUMENT
from stages import scans
from stages.base import Stage, Verdict, link_of
from stages.edits import composed, no_edits, removed_and_inserted
from stages.marking import judged, live_mask, mark

DROPS: Final = pa.schema([*SCHEMA, pa.field("failed", pa.bool_(), nullable=False)])
"""All that was dropped after judging: as the pass before wrote it, and here."""

_BETWEEN: Final = "/"
"""Stands between a link, which has none in its name, and a reason."""


@dataclass(frozen=True)
class Edits(UnitPass):
    """One unit per split: its edit file, all its drops, the scores of this chain, and what of it came to an end here.

    Attributes:
        workspace: the recipe's chain.
        chain: the stages; those with a model that the run fits learn on a worker's way where it is.
        models: the language models that this run fitted, None where it fits none.
        documents: what the judges kept, by split.
        dropped: what was dropped after that, by split.
        labels: the domains, which are joined from the plan.
    """

    name: ClassVar[str] = EDITS_PASS
    calls_native: ClassVar[bool] = True

    workspace: Workspace
    chain: tuple[Stage, ...]
    models: Output | None
    documents: Output
    dropped: Output
    labels: Labelling

    def section(self) -> Any:
        """Return the chain with its models and lists, and the labels."""
        return [chain_section(self.chain), self.labels.digest]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the splits."""
        return list(inputs.units(self.documents))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the splits, each with all models that the run fitted."""
        files = {output: inputs.files(output) for output in (self.documents, self.dropped)}
        models = {self.models: tuple(inputs.files(self.models).values())} if self.models else {}
        for name in pending:
            mine = {output: (entries[name],) for output, entries in files.items()}
            yield Unit(name, {**mine, **models}, inputs.sources(name))

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Edit and judge, with the models that this run fitted."""
        fitted = model_uris(self.workspace, inputs, self.models)
        chain = tuple(build_edits(self.workspace, fitted))
        return super(Edits, replace(self, chain=chain)).builder(job, inputs, pending)

    def work(self, job: Job, unit: Unit) -> None:
        """Edit and judge a split."""
        for entry in unit.files(self.models) if self.models else ():
            job.store.local_copy(entry)
        with Attempts(job.store, job.pass_name).during(unit.name) as isolated, contextlib.ExitStack() as stack:
            sink = _Sink(self.chain, stack.enter_context(job.store.scratch()))
            stack.callback(sink.close)
            labels = self.labels.labels(unit.detail)
            files = ViewFiles(unit.file(self.documents), unit.file(self.dropped))
            for batch in documents(job.store, files):
                batch = with_marks(labels.join(batch, ["domain"]))
                sink.add(batch, *edit(self.chain, batch, isolated=isolated))
            sink.commit(job, unit.name, read_table(job.store, files.drops))


def with_marks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return kept documents with the columns in which stages mark them."""
    for field in DOCUMENT:
        if field.name not in batch.schema.names and field.name not in ("licence", "payload", "media_type"):
            value = pa.scalar(False) if field.name == "failed" else pa.scalar(None, field.type)
            batch = batch.append_column(field, pa.repeat(value, batch.num_rows))
    return batch


def edit(
    chain: Sequence[Stage], batch: pa.RecordBatch, *, isolated: bool = False
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Apply a chain to documents.

    Args:
        chain: stages, of which some edit.
        batch: documents.
        isolated: whether a child process makes the calls.

    Returns:
        The batch as all stages mark it, with the text that is left; and what led to that from the text of ``batch``, in
        the schema ``stages.edits.EDITS``, with ``link/reason`` for reasons.

    Raises:
        UserError: if a stage changes the text without saying where.
    """
    edits = no_edits()
    for stage in chain:
        calls = _Calls(batch, isolated=isolated)
        with meter.measured(link_of(stage)):
            meter.note(rows=batch.num_rows, nbytes=batch.column("text").nbytes)
            batch = mark(stage, batch, calls)
        for rows, verdict in calls.made:
            if verdict.edits is not None:
                edits = composed(edits, _of_batch(verdict.edits, rows, link_of(stage)))
            elif "text" in verdict.columns:
                raise UserError(
                    f"the stage {link_of(stage)!r} gives documents another text, and does not say where it differs",
                    place="recipe, key edits",
                    remedy="Name it in [[stages]]",
                )
    return batch, edits


class _Calls:
    """Judges as ``mark`` does, and remembers the verdict."""

    def __init__(self, batch: pa.RecordBatch, *, isolated: bool) -> None:
        self._batch, self._isolated = batch, isolated
        self.made: list[tuple[npt.NDArray[np.int64], Verdict]] = []

    def __call__(self, stage: Stage, shown: pa.RecordBatch) -> Verdict:
        rows = np.flatnonzero(live_mask(stage, self._batch))
        if self._isolated:
            verdict = isolated_judge(stage, shown)
        else:
            verdict = judged(stage, scans.with_shared(stage.scans, self._batch, rows, shown))
        self.made.append((rows, verdict))
        return verdict


def _of_batch(edits: pa.RecordBatch, rows: npt.NDArray[np.int64], link: str) -> pa.RecordBatch:
    """Return the edits of the rows that a stage was shown as edits of the batch, with the link in their reasons."""
    moved = edits.set_column(0, edits.schema.field(0), pa.array(rows).take(edits.column("row")))
    reasons = pc.binary_join_element_wise(pa.scalar(link), edits.column("reason"), _BETWEEN)
    return moved.set_column(3, edits.schema.field(3), reasons)


class _Sink:
    """What a split's documents become, in a scratch folder until it is whole."""

    def __init__(self, chain: Sequence[Stage], scratch: Path) -> None:
        self._files = {kind: TableFile(scratch / f"{kind}.arrow") for kind in ("edits", "scores")}
        self._chain = chain
        self._scores = score_columns(chain)
        self._drops: list[pa.Table] = []
        self._counts: list[pa.Table] = []
        self._characters: list[pa.Table] = []
        self._score_counts = SCORES.empty_table()
        self._left = np.zeros(2, np.int64)

    def add(self, before: pa.RecordBatch, after: pa.RecordBatch, edits: pa.RecordBatch) -> None:
        """Take a batch, before and after the chain."""
        self._files["edits"].write(_edit_file(before, edits))
        self._files["scores"].write(after.select(["doc_id", *self._scores]))
        self._score_counts = added_up([self._score_counts, count_scores(pa.Table.from_batches([after]), self._chain)])
        ended = pc.is_valid(after.column("dropped_by"))
        # A record is counted by what it was when it was judged, whatever a stage says of its language now.
        fate = {name: (before if name == "language" else after).column(name) for name in FATE}
        self._counts.append(pa.table(fate).filter(ended))
        self._drops.append(_drop_rows(after.filter(ended)))
        left = after.filter(pc.invert(ended)).column("text")
        self._left += [len(left), pc.sum(pc.binary_length(left)).as_py() or 0]
        removed, inserted = removed_and_inserted(before.column("text"), edits)
        links, reasons = _parted(edits.column("reason"))
        of = before.select(["doc_id", "language", "domain"]).take(edits.column("row"))
        named = {"edited_by": links, "reason": reasons, "removed_chars": removed, "inserted_chars": inserted}
        self._characters.append(
            characters.of_edits(pa.table(dict(zip(of.schema.names, of.columns, strict=True)) | named))
        )

    def commit(self, job: Job, unit: str, earlier: pa.Table) -> None:
        """Publish the files, then the marker."""
        earlier = earlier.append_column(DROPS.field("failed"), pa.array(np.zeros(earlier.num_rows, np.bool_)))
        dropped = pa.concat_tables([earlier.cast(DROPS), *self._drops]).sort_by("doc_id")
        entries = {kind: file.publish(job.store, f"edits/{kind}", unit) for kind, file in self._files.items()}
        entries["drops"] = publish_table(job.store, dropped, "edits/drops", unit)
        survivors, size = self._left.tolist()
        statistics = {"survivors": survivors, "survivor_bytes": size}
        tables = {
            "counts": group_counts(pa.concat_tables(self._counts), list(FATE)),
            "characters": characters.summed(self._characters),
            "scores": self._score_counts,
        }
        job.commit(unit, entries, statistics, tables)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


def _parted(reasons: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return (links, reasons) of reasons that name both."""
    pairs = [name.split(_BETWEEN, 1) for name in reasons.to_pylist()]
    links, names = ([pair[place] for pair in pairs] for place in (0, 1))
    return pa.array(links, pa.string()), pa.array(names, pa.string())


def _edit_file(before: pa.RecordBatch, edits: pa.RecordBatch) -> pa.RecordBatch:
    links, reasons = _parted(edits.column("reason"))
    ids = before.column("doc_id").take(edits.column("row"))
    places: Mapping[str, pa.Array] = {name: edits.column(name) for name in ("start", "end", "replacement")}
    columns = {"doc_id": ids, "edited_by": links, "reason": reasons, **places}
    return pa.RecordBatch.from_arrays([columns[name] for name in EDIT_FILE.names], schema=EDIT_FILE)


def _drop_rows(ended: pa.RecordBatch) -> pa.Table:
    columns = {
        name: ended.column(name) if name in ended.schema.names else pa.nulls(ended.num_rows, DROPS.field(name).type)
        for name in DROPS.names
    }
    return pa.table(columns, schema=DROPS)
