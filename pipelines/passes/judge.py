"""*judge*: reads every split once and passes every verdict: ``splits | read | Apply ... | write``.

It writes four tables per split: *documents* (kept, with text), *verdicts* (every record, without text), *keys* (what
deduplication sees) and *samples* (a seeded few of the dropped texts per reason, to be read by people).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
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
from pipelines.passes.samples import Samples
from pipelines.plan import Plan, PlannedSource
from pipelines.planning.digests import DIGESTS, Digests, require_same
from pipelines.planning.labels import UNLABELLED, LabelRules, asks_for_domain, judged_rules
from pipelines.planning.watch import Watch, confirm, readings
from pipelines.recipe import SourceSettings
from pipelines.tables import TableFile, publish_table
from pipelines.workspace import Job, Workspace, resolved
from shards.files import open_input
from shards.schema import DOCUMENT, TEXT_COLUMNS
from stages.base import Stage
from stages.judges.perplexity import perplexity_bin
from stages.readers import Digest, Span
from stages.readers.base import READ, Source

UNSUPPORTED_MEDIA = "unsupported_media"
NOT_EXTRACTED = "no stage of the recipe took text from it"
HISTOGRAM = pa.schema([("language", pa.string()), ("bin", pa.int32()), ("documents", pa.int64())])
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
    "perplexity",
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
    version: ClassVar[int] = 2
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
        return [chain_section(build_chain(self.workspace, fitted)), judged_rules(self.workspace.recipe)]

    def units(self, inputs: Inputs) -> list[str]:
        """Return the splits."""
        return self.plan.splits.names

    def weights(self, inputs: Inputs) -> Mapping[str, int]:
        """Return the bytes of input of every split."""
        return dict(zip(self.plan.splits.names, self.plan.splits.sizes, strict=True))

    def chain(self, inputs: Inputs) -> list[Stage]:
        """Return the stages, with the models that this run fitted: a local path, or a URI that any worker can fetch."""
        fitted: dict[str, str] = {}
        if self.models is not None:
            store = self.workspace.store
            fitted = {language: store.checked_uri(entry) for language, entry in inputs.files(self.models).items()}
        return build_chain(self.workspace, fitted)

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
        recipe, base = self.workspace.recipe, self.workspace.base
        rules = LabelRules.of(recipe) if asks_for_domain(recipe) else None
        reading = _Read(job, self.models, recipe.sources, base, rules)
        return functools.partial(_add_chain, reading, tuple(self.chain(inputs)), _WriteSplits(job, base))


def _add_chain(reading: _Read, chain: Sequence[Stage], writing: _WriteSplits, splits: Any) -> None:
    batches = splits | "read" >> beam.ParDo(reading).with_output_types(pa.RecordBatch)
    for stage in chain:
        batches = batches | Apply(stage)
    _ = batches | "write" >> beam.ParDo(writing)


def source_of(planned: PlannedSource, settings: SourceSettings, path: str) -> Source:
    """Return what a reader needs to know of a planned source."""
    return Source(
        index=planned.index,
        span=planned.span and Span(*planned.span),
        path=path,
        format=settings.format,
        domain=UNLABELLED,
        text_key=settings.text_key,
        url_key=settings.url_key,
        date_key=settings.date_key,
        max_record_bytes=settings.max_record_bytes,
    )


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
        empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in DOCUMENT], schema=DOCUMENT)
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
        self._histogram: dict[str, dict[int, int]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        batch = without_textless(batch)
        batch = batch.append_column("text_bytes", pc.binary_length(batch.column("text")).cast(pa.int64()).fill_null(0))
        self._files["verdicts"].write(batch.drop_columns([*TEXT_COLUMNS, *_JOINED, "signature"]))
        self._samples.add(batch)
        kept = batch.filter(pc.is_null(batch.column("dropped_by")))
        self._files["documents"].write(kept.drop_columns([*_MARKS, *_JOINED, "payload", "media_type", "signature"]))
        self._files["keys"].write(kept.select([name for name in _KEYS if name in kept.schema.names]))
        self._count(batch)

    def _count(self, batch: pa.RecordBatch) -> None:
        if "perplexity" not in batch.schema.names:
            return
        scored = batch.filter(pc.is_valid(batch.column("perplexity")))
        bins = perplexity_bin(scored.column("perplexity").to_numpy(zero_copy_only=False))
        for language in sorted(set(scored.column("language").to_pylist())):
            mine = pc.equal(scored.column("language"), language).to_numpy(zero_copy_only=False)
            values, counts = np.unique(bins[mine], return_counts=True)
            histogram = self._histogram.setdefault(language, {})
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                histogram[value] = histogram.get(value, 0) + count

    def commit(self, closing: Any) -> None:
        sources, found = [PlannedSource(*row) for row, _ in closing], readings(reading for _, reading in closing)
        confirm(found, sources, functools.partial(resolved, self._base), self._job.root)
        entries = {
            kind: file.publish(self._job.store, f"judge/{kind}", self._unit) for kind, file in self._files.items()
        }
        entries["samples"] = publish_table(self._job.store, self._samples.table(), "judge/samples", self._unit)
        histogram = [
            {"language": language, "bin": value, "documents": documents}
            for language, bins in sorted(self._histogram.items())
            for value, documents in sorted(bins.items())
        ]
        tables = {"perplexity": pa.Table.from_pylist(histogram, HISTOGRAM), "sources": found.select(DIGESTS.names)}
        self._job.commit(self._unit, entries, tables=tables)

    def abandon(self) -> None:
        for file in self._files.values():
            file.close()
        self._stack.close()


def without_textless(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Mark what the whole chain left without a text: a page, say, in a recipe that extracts none. Nobody could use it.

    The reader gave it in the hope of a stage, so the drop is the reader's.
    """
    textless = pc.and_(pc.is_null(batch.column("text")), pc.is_null(batch.column("dropped_by")))
    if not pc.any(textless).as_py():
        return batch
    for name, mark in (("dropped_by", READ), ("reason", UNSUPPORTED_MEDIA), ("detail", NOT_EXTRACTED)):
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, batch.schema.field(name), pc.if_else(textless, mark, batch.column(name)))
    return batch
