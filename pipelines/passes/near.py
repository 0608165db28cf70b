"""*near*: near-duplicates by MinHash-LSH, every removal verified by exact Jaccard against a kept witness.

    signatures -> band keys -> GroupByKey by range -> candidate pairs          (near_pairs: one unit per range)
    documents  -> shingle sets of the candidates, text read in place           (near_sets: one unit per split)
    pairs      -> exact Jaccard from the sets                                  (near_verify: one unit per chunk)
    all pairs  -> survivors, witnesses, clusters                               (near: in the driver)

No text crosses a shuffle: it is read where it lies, by split.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.base import ALL, BeamPass, Builder, DriverPass, Inputs, UnitPass
from pipelines.beam.dofn import Step
from pipelines.beam.work_list import Output, Unit
from pipelines.capacity.estimate import RANGES_PER_PIPELINE
from pipelines.passes.keys import KeysBySplit, alive_keys, merged, range_names, splits
from pipelines.planning.labels import Labelling
from pipelines.tables import (
    is_in,
    one_array,
    publish_table,
    read_batches,
    read_table,
    shared_column,
    structured,
    unstructured,
)
from pipelines.workspace import Job
from shards.store import FileEntry, Store
from stages.dedup.components import components
from stages.dedup.minhash import band_keys, bands_for
from stages.dedup.near import BAND_KEY, PAIR, candidate_pairs, greedy_survivors, jaccard_of_pairs, near_keys
from stages.judges.fingerprint import signature_matrix
from stages.text.shingles import batch_shingles

PAIRS_PER_UNIT = 16_384
"""Verification holds the shingle sets of one chunk's documents: about 8 kB each, so usually 260 MB at most."""

VERIFIED = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8")])


@dataclass(frozen=True)
class NearPairs(BeamPass):
    """One unit per range of band keys."""

    name: ClassVar[str] = "near_pairs"
    units_per_pipeline: ClassVar[int | None] = RANGES_PER_PIPELINE
    starts_from_all: ClassVar[bool] = True

    keys: Output
    late: Output | None
    exact: Output | None
    threshold: float
    permutations: int
    range_bytes: int
    labels: Labelling
    """The priorities, which are joined from the plan."""

    def units(self, inputs: Inputs) -> list[str]:
        """Return the ranges, enough of them to keep each under ``range_bytes``."""
        bands, _ = bands_for(self.threshold, self.permutations)
        return range_names(inputs.rows(self.keys) * bands * BAND_KEY.itemsize, self.range_bytes)

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the splits."""
        ranges = len(self.units(inputs))
        return splits(inputs, self.keys, ranges)

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Shuffle the band keys of the ranges in ``pending`` and pair up each range's buckets."""
        return functools.partial(_add_ranges, _BandKeys(self, job, pending))

    def survivors(self, store: Store, split: Unit, columns: Sequence[str]) -> pa.Table:
        """Return ``columns`` of the keys of a split's documents that survive exact deduplication."""
        table = alive_keys(self, store, split, list(dict.fromkeys(["doc_id", *columns])))
        if self.exact is not None:
            gone = shared_column(store.root, split.file(self.exact), "doc_id")
            table = table.filter(pa.array(~is_in(table.column("doc_id").to_numpy(), gone)))
        return table.select(list(columns))


def _add_ranges(keys: _BandKeys, splits: Any) -> None:
    _ = (
        splits
        | "bands" >> beam.ParDo(keys).with_output_types(tuple[int, bytes])
        | "by range" >> beam.GroupByKey()
        | "pairs" >> beam.ParDo(_Pairs(keys.job))
    )


class _BandKeys(KeysBySplit):
    hashed = "key"

    def __init__(self, work: NearPairs, job: Job, wanted: Sequence[str]) -> None:
        super().__init__(job, wanted)
        self._pass = work

    def keys(self, split: Unit) -> npt.NDArray[Any]:
        bands, rows = bands_for(self._pass.threshold, self._pass.permutations)
        columns = ["doc_id", "priority", "signature", "shingles"]
        table = self._pass.survivors(self.job.store, split, columns)
        # A document without shingles has nothing to compare: its signature would equal that of every other one.
        table = table.filter(pc.greater(table.column("shingles"), 0))
        found = band_keys(signature_matrix(one_array(table.column("signature"))), bands, rows)
        return near_keys(found, table.column("priority").to_numpy(), table.column("doc_id").to_numpy())


class _Pairs(Step):
    def __init__(self, job: Job) -> None:
        self._job = job

    def work(self, keyed: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        index, pieces = keyed
        pairs = candidate_pairs([np.frombuffer(piece, BAND_KEY) for piece in pieces])
        unit = f"{index:05d}"
        entry = publish_table(self._job.store, unstructured(pairs), "near_pairs/pairs", unit)
        self._job.commit(unit, {"pairs": entry})
        yield from ()


@dataclass(frozen=True)
class NearCandidates(DriverPass):
    """Merges the ranges' pairs: bands find most pairs more than once."""

    name: ClassVar[str] = "near_candidates"

    pairs: Output

    def work(self, job: Job, inputs: Inputs) -> None:
        """Merge, sort, and list the documents that are in any pair."""
        pairs = np.unique(merged(job.store, inputs.files(self.pairs).values(), PAIR))
        ids = np.unique(np.concatenate([pairs["a"], pairs["b"]]))
        files = {
            "pairs": publish_table(job.store, unstructured(pairs), self.name, "pairs"),
            "documents": publish_table(job.store, pa.table({"doc_id": ids}), self.name, "documents"),
        }
        job.commit(ALL, files)


@dataclass(frozen=True)
class NearSets(UnitPass):
    """The shingle sets of the candidates, one unit per split: (doc_id, content_hash, sorted shingle hashes)."""

    name: ClassVar[str] = "near_sets"

    documents: Output
    candidates: Output
    shingle_words: int

    def units(self, inputs: Inputs) -> list[str]:
        """Return the splits."""
        return list(inputs.units(self.documents))

    def work(self, job: Job, unit: Unit) -> None:
        """Shingle a split's candidates."""
        wanted = shared_column(job.root, unit.file(self.candidates), "doc_id")
        parts = [_SETS.empty_table()]
        for batch in read_batches(job.store, unit.file(self.documents)):
            batch = batch.filter(pa.array(is_in(batch.column("doc_id").to_numpy(), wanted)))
            if batch.num_rows:
                offsets, hashes = batch_shingles(batch.column("text"), self.shingle_words)
                sets = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(hashes))
                columns = [batch.column("doc_id"), batch.column("content_hash"), sets]
                parts.append(pa.Table.from_arrays(columns, schema=_SETS))
        table = pa.concat_tables(parts)
        job.commit(unit.name, {"sets": publish_table(job.store, table, "near_sets/sets", unit.name)})


_HASHES = pa.schema([("doc_id", pa.int64()), ("priority", pa.int32()), ("content_hash", pa.binary(16))])
_SETS = pa.schema([("doc_id", pa.int64()), ("content_hash", pa.binary(16)), ("shingles", pa.large_list(pa.uint64()))])


@dataclass(frozen=True)
class NearVerify(UnitPass):
    """Exact Jaccard of the candidate pairs, one unit per chunk of them."""

    name: ClassVar[str] = "near_verify"

    pairs: Output
    sets: Output
    pairs_per_unit: int = PAIRS_PER_UNIT

    def units(self, inputs: Inputs) -> list[str]:
        """Return the chunks."""
        return [f"{index:06d}" for index in range(-(-inputs.rows(self.pairs) // self.pairs_per_unit))]

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the chunks, each with the sets of those splits whose documents are in it."""
        entry, sets = inputs.file(self.pairs), inputs.files(self.sets)
        table = inputs.read(self.pairs)
        for name in pending:
            names = inputs.splits_of(_ids(self._chunk(table, name)))
            yield Unit(name, {self.pairs: (entry,), self.sets: tuple(sets[split] for split in names)})

    def _chunk(self, table: pa.Table, unit: str) -> npt.NDArray[Any]:
        return structured(table.slice(int(unit) * self.pairs_per_unit, self.pairs_per_unit), PAIR)

    def work(self, job: Job, unit: Unit) -> None:
        """Verify a chunk of pairs."""
        pairs = self._chunk(read_table(job.store, unit.file(self.pairs)), unit.name)
        ids = _ids(pairs)
        offsets, hashes = _sets_of(job.store, unit.files(self.sets), ids)
        verified = np.empty(len(pairs), VERIFIED)
        verified["a"], verified["b"] = pairs["a"], pairs["b"]
        verified["jaccard"] = np.round(jaccard_of_pairs(pairs, ids, offsets, hashes), 4)
        entry = publish_table(job.store, unstructured(verified), "near_verify/pairs", unit.name)
        job.commit(unit.name, {"pairs": entry})


def _ids(pairs: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.unique(np.concatenate([pairs["a"], pairs["b"]]))


def _sets_of(
    store: Store, entries: Iterable[FileEntry], ids: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return (offsets, hashes) of the shingle sets of ``ids``, sorted doc_ids."""
    parts = []
    for entry in entries:
        table = read_table(store, entry)
        parts.append(table.filter(pa.array(is_in(table.column("doc_id").to_numpy(), ids))))
    table = pa.concat_tables(parts).sort_by("doc_id").combine_chunks()
    if table.num_rows != len(ids):
        raise AssertionError(f"{len(ids) - table.num_rows} candidates have no shingle set")
    sets = table.column("shingles").chunk(0)
    return np.asarray(sets.offsets) - sets.offsets[0].as_py(), np.asarray(sets.flatten())


@dataclass(frozen=True)
class Near(DriverPass):
    """Survivors and clusters over all verified pairs."""

    name: ClassVar[str] = "near"

    pairs: Output
    keys: Output
    threshold: float
    labels: Labelling
    """The priorities, which are joined from the plan."""

    def work(self, job: Job, inputs: Inputs) -> None:
        """Decide which documents are removed, with which witness, and which of them form a cluster."""
        verified = merged(job.store, inputs.files(self.pairs).values(), VERIFIED)
        close = verified[verified["jaccard"] >= self.threshold]
        ids = _ids(close)
        priorities, hashes = self._of_documents(job.store, inputs, ids)
        pairs = np.empty(len(close), PAIR)
        pairs["a"], pairs["b"] = close["a"], close["b"]
        removed = greedy_survivors(pairs, close["jaccard"], (ids, priorities), self.threshold)
        members, roots = components(close["a"], close["b"])
        clusters = pa.table({"doc_id": members, "cluster_hash": hashes.take(pa.array(np.searchsorted(ids, roots)))})
        files = {
            "removed": publish_table(job.store, unstructured(removed), self.name, "removed"),
            "clusters": publish_table(job.store, clusters, self.name, "clusters"),
        }
        job.commit(ALL, files, {"pairs": len(verified), "verified": len(close)})

    def _of_documents(
        self, store: Store, inputs: Inputs, ids: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int32], pa.Array]:
        """Return (priorities int32, content hashes) of ``ids``, sorted doc_ids."""
        entries = inputs.files(self.keys)
        parts = [_HASHES.empty_table()]
        for split in inputs.splits_of(ids):
            table = read_table(store, entries[split], ["doc_id", "source_index", "content_hash"])
            table = self.labels.labels(inputs.sources(split)).join(table, ["priority"])
            table = table.select(_HASHES.names).cast(_HASHES)
            parts.append(table.filter(pa.array(is_in(table.column("doc_id").to_numpy(), ids))))
        table = pa.concat_tables(parts).sort_by("doc_id")
        return table.column("priority").to_numpy(), one_array(table.column("content_hash"))
