"""*write*: re-reads the documents, leaves out what the drop files name, tokenises, and writes shards per domain.

A unit is a group of consecutive splits, or of parts of them (``pipelines.passes.grouping``). Shards do not depend on
the schedule: a changed learning rate or mixture re-tokenises nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.attempts import Attempts
from pipelines.beam.base import ALL, BeamPass, Builder, Inputs
from pipelines.beam.dofn import Step
from pipelines.beam.isolation import encode, isolate
from pipelines.beam.units import UnitSink, UnitWriter, numbered
from pipelines.beam.work_list import Output, Unit
from pipelines.passes.grouping import Piece, group_splits
from pipelines.passes.tokenizer import encoder_of, tokenizer_use
from pipelines.planning.labels import Labelling
from pipelines.tables import is_in, one_array, read_table, shared_table
from pipelines.view import ViewFiles, documents
from pipelines.workspace import Job
from shards.catalog import CATALOG_NAME, INDEX_FOLDER, ShardEntry
from shards.schema import SCHEMA_VERSION
from shards.store import FileEntry
from shards.writer import ShardWriter
from stages.failing import Failure
from stages.text.hashing import below_share, splitmix64

SHARDS = "shards"
TOKENS = "tokens"
HELD_OUT = "held_out"
REASON, DETAIL = "reason", "detail"
FAILURES = pa.schema(
    [
        ("doc_id", pa.int64()),
        (REASON, pa.string()),
        (DETAIL, pa.string()),
        ("language", pa.string()),
        ("domain", pa.string()),
    ]
)
"""The documents of a unit that could not be tokenised."""


@dataclass(frozen=True)
class Write(BeamPass):
    """One unit per group of splits or parts of them.

    Attributes:
        documents: what the judges kept, by split.
        drops: what was dropped later, by split.
        edits: what was changed in their texts, by split; None where the recipe has no [[edits]].
        clusters: near-duplicates among the survivors, by split.
        survivor_bytes: bytes of text that are left, by split.
        tokenizer: the run's tokeniser.
        unfit: documents on which it could not be fitted. They have failed already, and are not encoded.
        quick: whether fastokens encodes.
        labels: the domains, which are joined from the plan.
        end_of_text: the token that ends a document.
        target_bytes: a shard's size.
        held_out_share: the share of documents that no training sees.
        seed: chooses the held-out documents.
        schema_version: the layout's version.
    """

    name: ClassVar[str] = "write"
    version: ClassVar[int] = 3
    folders: ClassVar[tuple[str, ...]] = (SHARDS,)
    foreign: ClassVar[tuple[str, ...]] = (f"{SHARDS}/{CATALOG_NAME}", f"{SHARDS}/{INDEX_FOLDER}/")
    weighs_bytes: ClassVar[bool] = True
    calls_native: ClassVar[bool] = True

    documents: Output
    drops: Output
    edits: Output | None
    clusters: Output
    survivor_bytes: Output
    tokenizer: Output
    unfit: Output
    quick: Output
    labels: Labelling
    end_of_text: str
    target_bytes: int
    held_out_share: float
    seed: int
    schema_version: int = SCHEMA_VERSION

    def groups(self, inputs: Inputs) -> dict[str, tuple[Piece, ...]]:
        """Return what each unit is made of, by unit."""
        # Two bytes a token and about four characters a token: text is twice its tokens.
        return group_splits(inputs.statistics(self.survivor_bytes), 2 * self.target_bytes)

    def units(self, inputs: Inputs) -> list[str]:
        """Return the names of the groups: their position, and a digest of what they are made of."""
        return list(self.groups(inputs))

    def weights(self, inputs: Inputs) -> Mapping[str, int]:
        """Return the bytes of surviving text of every group."""
        return {unit: sum(piece.text_bytes for piece in pieces) for unit, pieces in self.groups(inputs).items()}

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the groups, each with the files of its splits."""
        groups, tokenizer = self.groups(inputs), (inputs.file(self.tokenizer),)
        outputs = (self.documents, self.drops, self.clusters, self.edits)
        files = {output: inputs.files(output) for output in outputs if output is not None}
        for name in pending:
            pieces = groups[name]
            mine = {output: tuple(entries[piece.split] for piece in pieces) for output, entries in files.items()}
            detail = [[inputs.sources(piece.split), piece.part, piece.parts] for piece in pieces]
            yield Unit(name, {**mine, self.tokenizer: tokenizer}, detail)

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Read, tokenise, write."""
        quick = inputs.statistics(self.quick)[ALL]
        return functools.partial(_add_writing, self, job, inputs.file(self.tokenizer), inputs.file(self.unfit), quick)


def _add_writing(work: Write, job: Job, tokenizer: FileEntry, unfit: FileEntry, quick: bool, groups: Any) -> None:
    _ = (
        groups
        | "read" >> beam.ParDo(_ReadSurvivors(work, job)).with_output_types(pa.RecordBatch)
        | "tokenise" >> beam.ParDo(_Tokenise(work, job, tokenizer, unfit, quick)).with_output_types(pa.RecordBatch)
        | "write" >> beam.ParDo(_WriteShards(work, job, tokenizer, quick))
    )


class _ReadSurvivors(Step):
    def __init__(self, work: Write, job: Job) -> None:
        self._pass, self._job = work, job

    def work(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        empty = pa.RecordBatch.from_pylist([], schema=_READ)
        with Attempts(self._job.store, self._job.pass_name).during(unit.name) as isolated:
            batches = numbered(unit.name, self._batches(unit), empty)
            yield from isolate(batches) if isolated else batches

    def _batches(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        work, store = self._pass, self._job.store
        judged, drops, clusters_of = (unit.files(one) for one in (work.documents, work.drops, work.clusters))
        edits = unit.files(work.edits) if work.edits else [None] * len(judged)
        pieces = zip(judged, drops, edits, clusters_of, unit.detail, strict=True)
        for text, gone, changed, entry, (sources, part, parts) in pieces:
            clusters, labels = read_table(store, entry), work.labels.labels(sources)
            for batch in documents(store, ViewFiles(text, gone, changed, part, parts)):
                batch = labels.join(batch, ["domain"])
                held = held_out_mask(batch, clusters, work.held_out_share, work.seed)
                columns = [batch.column(name) for name in _READ.names if name != HELD_OUT]
                yield pa.RecordBatch.from_arrays([*columns, pa.array(held)], schema=_READ)


_READ = pa.schema(
    [
        ("doc_id", pa.int64()),
        ("text", pa.string()),
        ("url", pa.string()),
        ("content_hash", pa.binary(16)),
        ("language", pa.string()),
        ("domain", pa.string()),
        ("source_index", pa.int32()),
        ("offset", pa.int64()),
        (HELD_OUT, pa.bool_()),
    ]
)


def held_out_mask(batch: pa.RecordBatch, clusters: pa.Table, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which documents are held out: by content hash, and by one hash for a whole cluster of near-duplicates.

    So a held-out document's near-duplicates are held out with it, wherever they lie.
    """
    keys = _hash_words(batch.column("content_hash"))
    members = clusters.column("doc_id").to_numpy()
    ids = batch.column("doc_id").to_numpy()
    inside = is_in(ids, members)
    if inside.any():
        place = np.searchsorted(members, ids[inside])
        keys[inside] = _hash_words(one_array(clusters.column("cluster_hash").take(pa.array(place))))
    return below_share(splitmix64(keys ^ np.uint64(seed)), share)


def _hash_words(hashes: pa.Array) -> npt.NDArray[np.uint64]:
    return np.frombuffer(b"".join(hashes.to_pylist()), "<u8")[::2].copy()


class _Tokenise(Step):
    def __init__(self, work: Write, job: Job, tokenizer: FileEntry, unfit: FileEntry, quick: bool) -> None:
        self._pass, self._job, self._tokenizer, self._unfit, self._quick = work, job, tokenizer, unfit, quick

    def work(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch, known = without_unfit(batch, shared_table(self._job.root, self._unfit))
        use = tokenizer_use(self._job.store, self._tokenizer, self._pass.end_of_text, self._quick)
        encoded = encode(use, batch)
        tokens = pa.LargeListArray.from_arrays(pa.array(encoded.offsets), pa.array(encoded.values))
        batch = batch.drop_columns(["text"]).append_column(TOKENS, tokens)
        failures = encoded.failures | known
        rows = [failures.get(row) for row in range(batch.num_rows)] if failures else []
        for name in (REASON, DETAIL):
            said = [failure and getattr(failure, name) for failure in rows] or [None] * batch.num_rows
            batch = batch.append_column(name, pa.array(said, pa.string()))
        yield batch


def without_unfit(batch: pa.RecordBatch, unfit: pa.Table) -> tuple[pa.RecordBatch, dict[int, Failure]]:
    """Return a batch without the texts of documents that have failed in the fit, and their failures by row."""
    if not unfit.num_rows:
        return batch, {}
    place = pc.index_in(batch.column("doc_id"), value_set=one_array(unfit.column("doc_id")))
    known = {
        row: Failure(unfit.column(REASON)[at].as_py(), unfit.column(DETAIL)[at].as_py())
        for row, at in enumerate(place.to_pylist())
        if at is not None
    }
    texts = pc.if_else(pc.is_valid(place), "", batch.column("text"))
    return batch.set_column(batch.schema.get_field_index("text"), "text", texts), known


class _WriteShards(UnitWriter):
    def __init__(self, work: Write, job: Job, tokenizer: FileEntry, quick: bool) -> None:
        super().__init__()
        self._pass, self._job, self._tokenizer, self._quick = work, job, tokenizer, quick

    def open_sink(self, unit: str) -> UnitSink:
        return _ShardSink(self._pass, self._job, self._tokenizer, self._quick, unit)


class _ShardSink(UnitSink):
    """The open shards of one unit, one per domain and subset. A full one is published; the marker counts it."""

    def __init__(self, work: Write, job: Job, tokenizer: FileEntry, quick: bool, unit: str) -> None:
        self._pass, self._job, self._unit = work, job, unit
        self._encoder = encoder_of(job.root, tokenizer, work.end_of_text, quick)
        self._end_of_text = self._encoder.token_id(work.end_of_text, "recipe, key tokenizer.end_of_text")
        self._stack = contextlib.ExitStack()
        self._scratch: Path = self._stack.enter_context(job.store.scratch())
        self._open: dict[tuple[str, str], ShardWriter] = {}
        self._files: dict[str, FileEntry] = {}
        self._entries: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._languages: dict[str, dict[str, int]] = {}
        self._failures: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        failed = pc.is_valid(batch.column(REASON))
        self._failures += batch.filter(failed).select(FAILURES.names).to_pylist()
        batch = batch.filter(pc.invert(failed))
        domains = np.asarray(batch.column("domain").to_pylist(), dtype=object)
        held = batch.column(HELD_OUT).to_numpy(zero_copy_only=False)
        for domain in sorted(set(domains.tolist())):
            for subset, mask in (("train", ~held), (HELD_OUT, held)):
                rows = np.flatnonzero((domains == domain) & mask)
                if len(rows):
                    self._add(domain, subset, batch.take(pa.array(rows)))

    def _add(self, domain: str, subset: str, batch: pa.RecordBatch) -> None:
        key = (domain, subset)
        if key not in self._open:
            self._open[key] = ShardWriter(
                self._scratch,
                domain=domain,
                subset=subset,
                vocab_size=self._encoder.vocab_size,
                end_of_text=self._end_of_text,
                tokenizer_digest=self._encoder.digest,
                name=f"{domain}.{subset}",
            )
        tokens = batch.column(TOKENS)
        offsets = np.asarray(tokens.offsets)
        self._open[key].add(np.asarray(tokens.values), offsets, batch)
        lengths = np.diff(offsets) + 1
        for language, count in zip(batch.column("language").to_pylist(), lengths.tolist(), strict=True):
            per_language = self._languages.setdefault(language, {"documents": 0, "tokens": 0})
            per_language["documents"] += 1
            per_language["tokens"] += count
        if self._open[key].nbytes >= self._pass.target_bytes:
            self._close(key)

    def _close(self, key: tuple[str, str]) -> None:
        domain, subset = key
        files = self._open.pop(key).close()
        place = self._entries.setdefault(domain, {}).setdefault(subset, [])
        folder, stem = f"{SHARDS}/{domain}/{subset}", f"{self._unit}-{len(place):04d}"
        store = self._job.store
        tokens = store.publish(files.tokens_path, folder, f"{stem}.tokens", files.rows)
        documents = store.publish(files.documents_path, folder, f"{stem}.documents", files.rows)
        shard = ShardEntry(
            tokens=tokens.path.removeprefix(f"{SHARDS}/"),
            documents=documents.path.removeprefix(f"{SHARDS}/"),
            rows=files.rows,
            token_count=files.tokens,
            tokens_bytes=tokens.size,
            documents_bytes=documents.size,
            values_at=files.values_at,
            tokens_sha256=tokens.sha256,
            documents_sha256=documents.sha256,
            lengths_sha256=files.lengths_sha256,
        )
        place.append(shard.model_dump(mode="json"))
        for kind, entry in (("tokens", tokens), ("documents", documents)):
            self._files[f"{domain}/{subset}/{len(place):04d}/{kind}"] = entry

    def commit(self, closing: Any) -> None:
        for key in sorted(self._open):
            self._close(key)
        statistics = {"shards": self._entries, "languages": dict(sorted(self._languages.items()))}
        tables = {"failures": pa.Table.from_pylist(self._failures, FAILURES)}
        self._job.commit(self._unit, self._files, statistics, tables)

    def abandon(self) -> None:
        self._stack.close()
