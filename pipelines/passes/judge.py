"""*judge*: reads every split once and passes every verdict: ``splits | read | Apply ... | write``.

It writes four tables per split: *documents* (kept, with text), *verdicts* (every record and all its scores, without
text), *keys* (what deduplication sees) and *samples* (a seeded few of the dropped texts per reason, to be read by
people).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.apply import Apply
from pipelines.beam.attempts import Attempts
from pipelines.beam.base import BeamPass, Builder, Inputs
from pipelines.beam.dofn import Step
from pipelines.beam.isolation import isolate, read
from pipelines.beam.units import UnitSink, UnitWriter, numbered
from pipelines.beam.work_list import Output, Unit
from pipelines.chain import build_chain, chain_section, fitted_languages
from pipelines.passes.fit_lm import model_uris
from pipelines.passes.samples import Samples
from pipelines.plan import Plan, PlannedSource
from pipelines.planning.digests import DIGESTS, Digests, require_same
from pipelines.planning.labels import LabelRules, asks_for_domain, judged_rules
from pipelines.planning.watch import Watch, confirm, readings
from pipelines.reading import source_of, without_textless
from pipelines.recipe import SourceSettings
from pipelines.tables import TableFile, publish_table
from pipelines.workspace import Job, Workspace, resolved
from shards.files import open_input
from shards.schema import TEXT_COLUMNS
from stages.base import Stage
from stages.readers import RECORD, Digest

# Whoever reads these tables joins the labels of sources and hosts from the plan.
_JOINED = ("domain", "licence")
_MARKS = ("dropped_by", "reason", "value", "failed", "detail")
_KEYS = (
    "doc_id",
    "source_index",
    "language",
    "content_hash",
    "signature",
    "shingles",
    "text_bytes",
)


@dataclass(frozen=True)
class Judge(BeamPass):
    """One unit per split.

    Attributes:
        workspace: the recipe's chain, sources and domain rules.
        plan: the splits.
        models: the language models that this run fitted, None where it fits none.
    """

    name: ClassVar[str] = "judge"
    version: ClassVar[int] = 4
    weighs_bytes: ClassVar[bool] = True
    calls_native: ClassVar[bool] = True

    workspace: Workspace
    plan: Plan
    models: Output | None

    def section(self) -> Any:
        """Return the chain with its models and lists, and the domain rules that it asks for.

        What a split holds is in its name.
        """
        fitted = dict.fromkeys((lm.language for lm in fitted_languages(self.workspace.recipe)), "")
        chain = build_chain(self.workspace.as_judged(), fitted)
        return [chain_section(chain), judged_rules(self.workspace.as_judged().recipe)]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the splits."""
        return self.plan.splits.names

    def weights(self, inputs: Inputs) -> Mapping[str, int]:
        """Return the bytes of input of every split."""
        return dict(zip(self.plan.splits.names, self.plan.splits.sizes, strict=True))

    def chain(self, inputs: Inputs) -> list[Stage]:
        """Return the stages, with the models that this run fitted: a local path, or a URI that any worker can fetch."""
        return build_chain(self.workspace.as_judged(), model_uris(self.workspace, inputs, self.models))

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the splits, each with its sources, their digests where they are known, and all fitted models."""
        models = {self.models: tuple(inputs.files(self.models).values())} if self.models else {}
        digests = Digests.load(self.workspace.store)
        for name in pending:
            sources = self.plan.by_name[name].sources
            known = digests.of(source.index for source in sources)
            yield Unit(name, models, [[astuple(one), digest] for one, digest in zip(sources, known, strict=True)])

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Read, judge by every stage of the chain, write."""
        recipe, base = self.workspace.as_judged().recipe, self.workspace.base
        rules = LabelRules.of(recipe) if asks_for_domain(recipe) else None
        reading = _Read(job, self.models, recipe.sources, base, rules)
        return functools.partial(_add_chain, reading, tuple(self.chain(inputs)), _WriteSplits(job, base))


def _add_chain(reading: _Read, chain: Sequence[Stage], writing: _WriteSplits, splits: Any) -> None:
    batches = splits | "read" >> beam.ParDo(reading).with_output_types(pa.RecordBatch)
    for stage in chain:
        batches = batches | Apply(stage)
    _ = batches | "write" >> beam.ParDo(writing)


class _Read(Step):
    def __init__(
        self,
        job: Job,
        models: Output | None,
        settings: Sequence[SourceSettings],
        base: str,
        rules: LabelRules | None,
    ) -> None:
        self._job, self._models, self._settings, self._base, self._rules = job, models, settings, base, rules

    def work(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        if self._models is not None:
            for entry in unit.files(self._models):
                # Stages open models by path, in this process: of a local one the content is compared here, of a remote
                # one when it is fetched.
                self._job.store.local_copy(entry)
        empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in RECORD], schema=RECORD)
        readings: list[Any] = []
        with Attempts(self._job.store, self._job.pass_name).during(unit.name) as isolated:
            batches = self._batches(unit, readings, isolated=isolated)
            batches = numbered(unit.name, batches, empty, lambda: readings)
            yield from isolate(batches) if isolated else batches

    def _batches(self, unit: Unit, readings: list[Any], *, isolated: bool) -> Iterator[pa.RecordBatch]:
        planned = [(PlannedSource(*row), digest) for row, digest in unit.detail]
        labels = self._rules and self._rules.labels([(one.index, 1, one.settings) for one, _ in planned])
        for one, digest in planned:
            path = resolved(self._base, one.path)
            source, watch = source_of(one, self._settings[one.settings], path), Watch(one, path, self._job.root)
            taken = Digest()
            if isolated:
                watch.open_input(path).close()
            for batch in read(source, open_input if isolated else watch.open_input, taken, isolated=isolated):
                yield labels.with_domain(batch) if labels else batch
            found = taken.hex or watch.digest()
            require_same(digest, found, one.path, self._job.root)
            readings.append([astuple(one), watch.reading(found)])


class _WriteSplits(UnitWriter):
    def __init__(self, job: Job, base: str) -> None:
        super().__init__()
        self._job, self._base = job, base

    def open_sink(self, unit: str) -> UnitSink:
        return _SplitSink(self._job, unit, self._base)


class _SplitSink(UnitSink):
    """The tables of one split, in a scratch folder until they are whole."""

    def __init__(self, job: Job, unit: str, base: str) -> None:
        self._job, self._unit, self._base = job, unit, base
        self._stack = contextlib.ExitStack()
        scratch: Path = self._stack.enter_context(job.store.scratch())
        self._files = {kind: TableFile(scratch / f"{kind}.arrow") for kind in ("documents", "verdicts", "keys")}
        self._samples = Samples()

    def write(self, batch: pa.RecordBatch) -> None:
        batch = without_textless(batch)
        batch = batch.append_column("text_bytes", pc.binary_length(batch.column("text")).cast(pa.int64()).fill_null(0))
        self._files["verdicts"].write(batch.drop_columns([*TEXT_COLUMNS, *_JOINED, "signature"]))
        self._samples.add(batch)
        kept = batch.filter(pc.is_null(batch.column("dropped_by")))
        own = [name for name in kept.schema.names if "." not in name]
        kept = kept.select(own)
        self._files["documents"].write(kept.drop_columns([*_MARKS, *_JOINED, "payload", "media_type", "signature"]))
        self._files["keys"].write(kept.select([name for name in _KEYS if name in kept.schema.names]))

    def commit(self, closing: Any) -> None:
        sources, found = [PlannedSource(*row) for row, _ in closing], readings(reading for _, reading in closing)
        confirm(found, sources, functools.partial(resolved, self._base), self._job.root)
        entries = {
            kind: file.publish(self._job.store, f"judge/{kind}", self._unit) for kind, file in self._files.items()
        }
        entries["samples"] = publish_table(self._job.store, self._samples.table(), "judge/samples", self._unit)
        tables = {"sources": found.select(DIGESTS.names)}
        self._job.commit(self._unit, entries, tables=tables)

    def abandon(self) -> None:
        for file in self._files.values():
            file.close()
        self._stack.close()
