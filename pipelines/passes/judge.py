"""*judge*: reads every split once and passes every verdict: ``Create(splits) | Reshuffle | read | Apply ... | write``.

It writes four tables per split: *documents* (kept, with text), *verdicts* (every record, without text), *keys* (what
deduplication sees) and *samples* (a seeded few of the dropped texts per reason, to be read by people).
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.apply import Apply
from pipelines.beam.base import Builder, Pass
from pipelines.beam.dofn import Step
from pipelines.beam.units import UnitSink, UnitWriter, numbered
from pipelines.chain import build_chain, chain_section, fitted_models
from pipelines.plan import PlannedSource, Split, plan_of
from pipelines.recipe import SourceSettings
from pipelines.tables import TableFile, group_counts, publish_table
from pipelines.workspace import Run
from shards.schema import DOCUMENT, TEXT_COLUMNS
from shards.store import open_input
from stages.judges.perplexity import perplexity_bin
from stages.readers import read
from stages.readers.base import READ, Source
from stages.text.hashing import splitmix64
from stages.url import domains

SAMPLES_PER_REASON = 10
SAMPLE_CHARS = 4_000
UNSUPPORTED_MEDIA = "unsupported_media"
NOT_EXTRACTED = "no stage of the recipe took text from it"
_MARKS = ("dropped_by", "reason", "value", "failed", "detail")
_KEYS = ("doc_id", "source_index", "language", "domain", "content_hash", "signature", "shingles", "text_bytes")


class Judge(Pass):
    """One unit per split."""

    name = "judge"
    upstream = ("fit_lm",)
    weighs_bytes = True

    def section(self, run: Run) -> Any:
        """The chain with its models and lists, the domain rules; what a split holds is in its name."""
        chain = build_chain(run.workspace, fitted_models(run))
        rules = [rule.model_dump() for rule in run.recipe.domains]
        return [chain_section(chain), rules]

    def units(self, run: Run) -> list[str]:
        """The splits."""
        return [split.name for split in plan_of(run).splits]

    def weight(self, run: Run, unit: str) -> int:
        """Bytes of input."""
        return plan_of(run).by_name[unit].size

    def builder(self, run: Run, units: Sequence[str]) -> Builder:
        """Read, judge by every stage of the chain, write."""
        chain = build_chain(run.workspace, fitted_models(run))

        def build(pipeline: Any) -> None:
            batches = (
                pipeline
                | beam.Create(list(units))
                | beam.Reshuffle()
                | "read" >> beam.ParDo(_Read(run)).with_output_types(pa.RecordBatch)
            )
            for stage in chain:
                batches = batches | Apply(stage)
            _ = batches | "write" >> beam.ParDo(_WriteSplits(run))

        return build


def source_of(planned: PlannedSource, settings: SourceSettings, path: str) -> Source:
    """Return what a reader needs to know of a planned source."""
    return Source(
        index=planned.index,
        path=path,
        format=settings.format,
        domain=settings.domain,
        licence=settings.licence,
        text_key=settings.text_key,
        url_key=settings.url_key,
        date_key=settings.date_key,
        max_record_bytes=settings.max_record_bytes,
    )


class _Read(Step):
    def __init__(self, run: Run) -> None:
        self._run = run

    def work(self, unit: str) -> Iterator[pa.RecordBatch]:
        split = plan_of(self._run).by_name[unit]
        empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in DOCUMENT], schema=DOCUMENT)
        yield from numbered(unit, self._batches(split), empty)

    def _batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        recipe, workspace = self._run.recipe, self._run.workspace
        rules = [(rule.name, rule.hosts) for rule in recipe.domains]
        for planned in split.sources:
            source = source_of(planned, recipe.sources[planned.settings], workspace.input_path(planned.path))
            for batch in read(source, open_input):
                yield domains.assign(batch, rules) if rules else batch


class _WriteSplits(UnitWriter):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def open_sink(self, unit: str) -> UnitSink:
        return _SplitSink(self._run, unit)


class _SplitSink(UnitSink):
    """The tables of one split, in a scratch folder until they are whole."""

    def __init__(self, run: Run, unit: str) -> None:
        self._run, self._unit = run, unit
        self._stack = contextlib.ExitStack()
        scratch: Path = self._stack.enter_context(run.store.scratch())
        self._files = {kind: TableFile(scratch / f"{kind}.arrow") for kind in ("documents", "verdicts", "keys")}
        self._samples = Samples(SAMPLES_PER_REASON)
        self._counts: list[pa.Table] = []
        self._histogram: dict[str, dict[int, int]] = {}
        plan = plan_of(run)
        self._priority = {s.index: run.recipe.sources[s.settings].priority for s in plan.by_name[unit].sources}

    def write(self, batch: pa.RecordBatch) -> None:
        batch = without_textless(batch)
        batch = batch.append_column("text_bytes", pc.binary_length(batch.column("text")).cast(pa.int64()).fill_null(0))
        self._files["verdicts"].write(batch.drop_columns([*TEXT_COLUMNS, "signature"]))
        self._samples.add(batch)
        kept = batch.filter(pc.is_null(batch.column("dropped_by")))
        self._files["documents"].write(kept.drop_columns([*_MARKS, "payload", "media_type", "signature"]))
        self._files["keys"].write(self._keys(kept))
        self._count(batch)

    def _keys(self, kept: pa.RecordBatch) -> pa.RecordBatch:
        names = [*_KEYS, *(["perplexity"] if "perplexity" in kept.schema.names else [])]
        keys = kept.select(names)
        sources = kept.column("source_index").to_pylist()
        return keys.append_column("priority", pa.array([self._priority[s] for s in sources], pa.int32()))

    def _count(self, batch: pa.RecordBatch) -> None:
        names = ["dropped_by", "reason", "failed", "language", "domain"]
        self._counts.append(pa.Table.from_batches([batch.select(names)]))
        if len(self._counts) >= 64:
            self._counts = [pa.concat_tables(self._counts)]
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

    def commit(self) -> None:
        entries = {
            kind: file.publish(self._run.store, f"judge/{kind}", self._unit) for kind, file in self._files.items()
        }
        entries["samples"] = publish_table(self._run.store, self._samples.table(), "judge/samples", self._unit)
        counted = group_counts(pa.concat_tables(self._counts), ["dropped_by", "reason", "failed", "language", "domain"])
        histogram = {lang: {str(b): n for b, n in sorted(h.items())} for lang, h in sorted(self._histogram.items())}
        self._run.commit("judge", self._unit, entries, {"counts": counted, "perplexity": histogram})

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


class Samples:
    """Keeps, for each (stage, reason), the dropped documents with the smallest hashes of doc_id: any few."""

    SCHEMA = pa.schema(
        [
            ("doc_id", pa.int64()),
            ("dropped_by", pa.string()),
            ("reason", pa.string()),
            ("value", pa.float64()),
            ("url", pa.string()),
            ("text", pa.string()),
        ]
    )

    def __init__(self, per_reason: int) -> None:
        self._limit = per_reason
        self._heaps: dict[tuple[str, str], list[tuple[int, int, dict[str, Any]]]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Consider a batch's dropped rows that still have a text."""
        with_text = pc.and_(pc.is_valid(batch.column("dropped_by")), pc.is_valid(batch.column("text")))
        rows = np.flatnonzero(with_text.to_numpy(zero_copy_only=False))
        hashes = splitmix64(batch.column("doc_id").to_numpy().astype(np.uint64))
        for row in rows.tolist():
            self._offer(batch, row, int(hashes[row]))

    def _offer(self, batch: pa.RecordBatch, row: int, key: int) -> None:
        reason = (batch.column("dropped_by")[row].as_py(), batch.column("reason")[row].as_py())
        heap = self._heaps.setdefault(reason, [])
        if len(heap) >= self._limit and -key <= heap[0][0]:
            return
        found = {name: batch.column(name)[row].as_py() for name in self.SCHEMA.names}
        found["text"] = found["text"][:SAMPLE_CHARS]
        entry = (-key, found["doc_id"], found)
        if len(heap) < self._limit:
            heapq.heappush(heap, entry)
        else:
            heapq.heapreplace(heap, entry)

    def table(self) -> pa.Table:
        """Return the samples, by stage, reason and hash."""
        rows: Iterable[dict[str, Any]] = (
            found for reason in sorted(self._heaps) for _, _, found in sorted(self._heaps[reason], key=_by_hash)
        )
        return pa.Table.from_pylist(list(rows), schema=self.SCHEMA)


def _by_hash(entry: tuple[int, int, dict[str, Any]]) -> int:
    return -entry[0]
