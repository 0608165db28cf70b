"""*near*: near-duplicates by MinHash-LSH, every removal verified by exact Jaccard against a kept witness.

    signatures -> band keys -> GroupByKey by range -> candidate pairs          (near_pairs: one unit per range)
    documents  -> shingle sets of the candidates, text read in place           (near_sets: one unit per split)
    pairs      -> exact Jaccard from the sets, opened by path                  (near_verify: one unit per chunk)
    all pairs  -> survivors, witnesses, clusters                               (near: in the driver)

No text crosses a shuffle: it is read where it lies, by split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.beam.base import Builder, DriverPass, Pass, UnitPass
from pipelines.beam.dofn import Step
from pipelines.capacity.estimate import RANGES_PER_PIPELINE
from pipelines.passes.exact import exact_drops_of
from pipelines.passes.keys import KeysBySplit, alive_keys, documents, is_in, merged, range_names, split_names
from pipelines.plan import plan_of
from pipelines.tables import one_array, publish_table, read_batches, read_table, structured, unstructured
from pipelines.workspace import Run
from stages.dedup.components import components
from stages.dedup.minhash import band_keys, bands_for
from stages.dedup.near import BAND_KEY, PAIR, candidate_pairs, greedy_survivors, jaccard_of_pairs, near_keys
from stages.judges.fingerprint import signature_matrix
from stages.text.shingles import batch_shingles

PAIRS_PER_UNIT = 16_384
"""Verification holds the shingle sets of one chunk's documents: about 8 kB each, so usually 260 MB at most."""

VERIFIED = np.dtype([("a", "<i8"), ("b", "<i8"), ("jaccard", "<f8")])


class NearPairs(Pass):
    """One unit per range of band keys."""

    name = "near_pairs"
    upstream = ("judge", "decide", "exact")
    units_per_pipeline = RANGES_PER_PIPELINE

    def section(self, run: Run) -> Any:
        """Threshold, permutations and range size."""
        dedup = run.recipe.dedup
        return [dedup.near, dedup.threshold, dedup.permutations, dedup.range_bytes]

    def units(self, run: Run) -> list[str]:
        """The ranges: as many as keep each under ``range_bytes``."""
        dedup = run.recipe.dedup
        if not dedup.near:
            return []
        bands, _ = bands_for(dedup.threshold, dedup.permutations)
        return range_names(documents(run) * bands * BAND_KEY.itemsize, dedup.range_bytes)

    def builder(self, run: Run, units: Sequence[str]) -> Builder:
        """Shuffle the band keys of the ranges in ``units`` and pair up each range's buckets."""
        splits, ranges = split_names(run), len(self.units(run))

        def build(pipeline: Any) -> None:
            _ = (
                pipeline
                | beam.Create(splits)
                | beam.Reshuffle()
                | "bands" >> beam.ParDo(_BandKeys(run, ranges, units, splits[0])).with_output_types(tuple[int, bytes])
                | beam.GroupByKey()
                | "pairs" >> beam.ParDo(_Pairs(run))
            )

        return build


class _BandKeys(KeysBySplit):
    hashed = "key"

    def keys(self, split: str) -> npt.NDArray[Any]:
        dedup = self._run.recipe.dedup
        bands, rows = bands_for(dedup.threshold, dedup.permutations)
        table = survivors_of_exact(self._run, split, ["doc_id", "priority", "signature", "shingles"])
        # A document without a single shingle has nothing to compare: its signature would equal every other such one's.
        table = table.filter(pc.greater(table.column("shingles"), 0))
        found = band_keys(signature_matrix(one_array(table.column("signature"))), bands, rows)
        return near_keys(found, table.column("priority").to_numpy(), table.column("doc_id").to_numpy())


def survivors_of_exact(run: Run, split: str, columns: Sequence[str]) -> pa.Table:
    """Return ``columns`` of the keys of a split's documents that are alive after exact deduplication."""
    table = alive_keys(run, split, list(dict.fromkeys(["doc_id", *columns])))
    gone = is_in(table.column("doc_id").to_numpy(), exact_drops_of(run)["doc_id"])
    return table.filter(pa.array(~gone)).select(list(columns))


class _Pairs(Step):
    def __init__(self, run: Run) -> None:
        self._run = run

    def work(self, keyed: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        index, pieces = keyed
        pairs = candidate_pairs([np.frombuffer(piece, BAND_KEY) for piece in pieces])
        unit = f"{index:05d}"
        entry = publish_table(self._run.store, unstructured(pairs), "near_pairs/pairs", unit)
        self._run.commit("near_pairs", unit, {"pairs": entry}, {"pairs": len(pairs)})
        yield from ()


class NearCandidates(DriverPass):
    """Merges the ranges' pairs: bands find most pairs more than once."""

    name = "near_candidates"
    upstream = ("near_pairs",)

    def section(self, run: Run) -> Any:
        """Nothing beyond its upstream."""
        return []

    def work(self, run: Run) -> None:
        """Merge, sort, and list the documents that are in any pair."""
        pairs = np.unique(merged(run, "near_pairs", "pairs", PAIR))
        ids = np.unique(np.concatenate([pairs["a"], pairs["b"]]))
        files = {
            "pairs": publish_table(run.store, unstructured(pairs), self.name, "pairs"),
            "documents": publish_table(run.store, pa.table({"doc_id": ids}), self.name, "documents"),
        }
        run.commit(self.name, self.UNIT, files, {"pairs": len(pairs), "documents": len(ids)})


class NearSets(UnitPass):
    """The shingle sets of the candidates, one unit per split: (doc_id, content_hash, sorted shingle hashes)."""

    name = "near_sets"
    upstream = ("judge", "near_candidates")

    def section(self, run: Run) -> Any:
        """The shingles' length."""
        return [run.recipe.dedup.shingle_words]

    def units(self, run: Run) -> list[str]:
        """The splits."""
        return split_names(run) if run.recipe.dedup.near else []

    def work(self, run: Run, unit: str) -> None:
        """Shingle a split's candidates."""
        entry = run.folder("near_candidates").require(DriverPass.UNIT).files["documents"]
        wanted = read_table(run.store, entry).column("doc_id").to_numpy()
        documents_entry = run.folder("judge").require(unit).files["documents"]
        parts = [_SETS.empty_table()]
        for batch in read_batches(run.store, documents_entry):
            batch = batch.filter(pa.array(is_in(batch.column("doc_id").to_numpy(), wanted)))
            if batch.num_rows:
                offsets, hashes = batch_shingles(batch.column("text"), run.recipe.dedup.shingle_words)
                sets = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(hashes))
                columns = [batch.column("doc_id"), batch.column("content_hash"), sets]
                parts.append(pa.Table.from_arrays(columns, schema=_SETS))
        table = pa.concat_tables(parts)
        files = {"sets": publish_table(run.store, table, "near_sets/sets", unit)}
        run.commit(self.name, unit, files, {"documents": table.num_rows})


_HASHES = pa.schema([("doc_id", pa.int64()), ("priority", pa.int32()), ("content_hash", pa.binary(16))])
_SETS = pa.schema([("doc_id", pa.int64()), ("content_hash", pa.binary(16)), ("shingles", pa.large_list(pa.uint64()))])


class NearVerify(UnitPass):
    """Exact Jaccard of the candidate pairs, one unit per chunk of them."""

    name = "near_verify"
    upstream = ("near_candidates", "near_sets")

    def section(self, run: Run) -> Any:
        """The chunk's size."""
        return [PAIRS_PER_UNIT]

    def units(self, run: Run) -> list[str]:
        """The chunks."""
        pairs = run.folder("near_candidates").require(DriverPass.UNIT).statistics["pairs"]
        return [f"{index:06d}" for index in range(-(-pairs // PAIRS_PER_UNIT))]

    def work(self, run: Run, unit: str) -> None:
        """Verify a chunk of pairs."""
        entry = run.folder("near_candidates").require(DriverPass.UNIT).files["pairs"]
        start = int(unit) * PAIRS_PER_UNIT
        pairs = structured(read_table(run.store, entry).slice(start, PAIRS_PER_UNIT), PAIR)
        ids = np.unique(np.concatenate([pairs["a"], pairs["b"]]))
        offsets, hashes = _sets_of(run, ids)
        verified = np.empty(len(pairs), VERIFIED)
        verified["a"], verified["b"] = pairs["a"], pairs["b"]
        verified["jaccard"] = np.round(jaccard_of_pairs(pairs, ids, offsets, hashes), 4)
        files = {"pairs": publish_table(run.store, unstructured(verified), "near_verify/pairs", unit)}
        run.commit(self.name, unit, files, {"pairs": len(pairs)})


def _sets_of(run: Run, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return (offsets, hashes) of the shingle sets of ``ids``, sorted doc_ids."""
    parts = []
    for split in _splits_of(run, ids):
        table = read_table(run.store, run.folder("near_sets").require(split).files["sets"])
        parts.append(table.filter(pa.array(is_in(table.column("doc_id").to_numpy(), ids))))
    table = pa.concat_tables(parts).sort_by("doc_id").combine_chunks()
    if table.num_rows != len(ids):
        raise AssertionError(f"{len(ids) - table.num_rows} candidates have no shingle set")
    sets = table.column("shingles").chunk(0)
    return np.asarray(sets.offsets) - sets.offsets[0].as_py(), np.asarray(sets.flatten())


def _splits_of(run: Run, ids: npt.NDArray[np.int64]) -> list[str]:
    """Return the splits that the documents ``ids`` come from: the others' files need not be opened."""
    sources = set(np.unique(ids >> 32).tolist())
    return [split.name for split in plan_of(run).splits if sources & {source.index for source in split.sources}]


class Near(DriverPass):
    """Survivors and clusters over all verified pairs."""

    name = "near"
    upstream = ("judge", "decide", "near_verify", "near_sets")

    def section(self, run: Run) -> Any:
        """The threshold, and the priorities of sources, which order survivors."""
        return [run.recipe.dedup.threshold, [source.priority for source in run.recipe.sources]]

    def work(self, run: Run) -> None:
        """Decide who is removed, with which witness, and which documents are one cluster."""
        verified = merged(run, "near_verify", "pairs", VERIFIED)
        close = verified[verified["jaccard"] >= run.recipe.dedup.threshold]
        ids = np.unique(np.concatenate([close["a"], close["b"]]))
        priorities, hashes = _of_documents(run, ids)
        pairs = np.empty(len(close), PAIR)
        pairs["a"], pairs["b"] = close["a"], close["b"]
        removed = greedy_survivors(pairs, close["jaccard"], (ids, priorities), run.recipe.dedup.threshold)
        members, roots = components(close["a"], close["b"])
        clusters = pa.table({"doc_id": members, "cluster_hash": hashes.take(pa.array(np.searchsorted(ids, roots)))})
        files = {
            "removed": publish_table(run.store, unstructured(removed), self.name, "removed"),
            "clusters": publish_table(run.store, clusters, self.name, "clusters"),
        }
        statistics = {"pairs": len(verified), "verified": len(close), "removed": len(removed)}
        run.commit(self.name, self.UNIT, files, statistics)


def _of_documents(run: Run, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return (priorities int32, content hashes) of ``ids``, sorted doc_ids."""
    parts = [_HASHES.empty_table()]
    for split in _splits_of(run, ids):
        table = alive_keys(run, split, _HASHES.names).cast(_HASHES)
        parts.append(table.filter(pa.array(is_in(table.column("doc_id").to_numpy(), ids))))
    table = pa.concat_tables(parts).sort_by("doc_id")
    return table.column("priority").to_numpy(), one_array(table.column("content_hash"))
