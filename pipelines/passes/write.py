"""*write*: re-reads the documents, leaves out what the drop files name, tokenises, and writes shards per domain.

A unit is a group of consecutive splits whose survivors fill a shard. Shards do not depend on the schedule: a changed
learning rate or mixture re-tokenises nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam.base import Builder, DriverPass, Pass
from pipelines.beam.dofn import Step
from pipelines.beam.units import UnitSink, UnitWriter, numbered
from pipelines.passes.keys import is_in, split_names
from pipelines.passes.tokenizer import encoder_of, survivors
from pipelines.tables import one_array, read_table
from pipelines.workspace import Run
from shards.catalog import CATALOG_NAME, DomainShards, ShardCatalog, ShardEntry
from shards.manifest import digest_of
from shards.schema import SCHEMA_VERSION
from shards.store import FileEntry
from shards.writer import ShardWriter, token_dtype
from stages.text.hashing import below_share, splitmix64

SHARDS = "shards"
TOKENS = "tokens"
HELD_OUT = "held_out"


class Write(Pass):
    """One unit per group of splits."""

    name = "write"
    upstream = ("judge", "drops", "tokenizer")

    def section(self, run: Run) -> Any:
        """Shard settings, the seed that picks held-out documents, and the layout's version."""
        return [run.recipe.shards.model_dump(), run.recipe.seed, SCHEMA_VERSION]

    def units(self, run: Run) -> list[str]:
        """The groups, by position of the first split and digest of its splits."""
        return list(groups_of(run))

    def weight(self, run: Run, unit: str) -> int:
        """Bytes of surviving text."""
        sizes = _survivor_bytes(run)
        return sum(sizes[split] for split in groups_of(run)[unit])

    weighs_bytes = True

    def builder(self, run: Run, units: Sequence[str]) -> Builder:
        """Read, tokenise, write."""

        def build(pipeline: Any) -> None:
            _ = (
                pipeline
                | beam.Create(list(units))
                | beam.Reshuffle()
                | "read" >> beam.ParDo(_ReadSurvivors(run)).with_output_types(pa.RecordBatch)
                | "tokenise" >> beam.ParDo(_Tokenise(run)).with_output_types(pa.RecordBatch)
                | "write" >> beam.ParDo(_WriteShards(run))
            )

        return build


@functools.lru_cache(maxsize=1)
def _survivor_bytes(run: Run) -> dict[str, int]:
    return {unit["unit"]: unit["statistics"]["survivor_bytes"] for unit in run.manifest("drops")["units"]}


@functools.lru_cache(maxsize=1)
def groups_of(run: Run) -> dict[str, tuple[str, ...]]:
    """Return the groups of consecutive splits, by unit name: a group closes when its text reaches a shard's size."""
    groups: dict[str, tuple[str, ...]] = {}
    group: list[str] = []
    size = 0
    sizes = _survivor_bytes(run)
    # Two bytes a token and about four characters a token: text is twice its tokens.
    target = 2 * run.recipe.shards.target_bytes
    for split in split_names(run):
        group.append(split)
        size += sizes[split]
        if size >= target:
            groups[f"{len(groups):05d}-{digest_of(group)[:8]}"] = tuple(group)
            group, size = [], 0
    if group:
        groups[f"{len(groups):05d}-{digest_of(group)[:8]}"] = tuple(group)
    return groups


class _ReadSurvivors(Step):
    def __init__(self, run: Run) -> None:
        self._run = run

    def work(self, unit: str) -> Iterator[pa.RecordBatch]:
        empty = pa.RecordBatch.from_pylist([], schema=_READ)
        yield from numbered(unit, self._batches(unit), empty)

    def _batches(self, unit: str) -> Iterator[pa.RecordBatch]:
        for split in groups_of(self._run)[unit]:
            clusters = read_table(self._run.store, self._run.folder("drops").require(split).files["clusters"])
            for batch in survivors(self._run, split):
                held = held_out_mask(batch, clusters, self._run.recipe.shards.held_out_share, self._run.recipe.seed)
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
    def __init__(self, run: Run) -> None:
        self._run = run

    def work(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        encoder, _ = encoder_of(self._run)
        values, offsets = encoder.encode(batch.column("text").to_pylist())
        tokens = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
        yield batch.drop_columns(["text"]).append_column(TOKENS, tokens)


class _WriteShards(UnitWriter):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def open_sink(self, unit: str) -> UnitSink:
        return _ShardSink(self._run, unit)


class _ShardSink(UnitSink):
    """The open shards of one unit, one per domain and split. A full one is published; the marker counts it."""

    def __init__(self, run: Run, unit: str) -> None:
        self._run, self._unit = run, unit
        self._encoder, self._end_of_text = encoder_of(run)
        self._stack = contextlib.ExitStack()
        self._scratch: Path = self._stack.enter_context(run.store.scratch())
        self._open: dict[tuple[str, str], ShardWriter] = {}
        self._files: dict[str, FileEntry] = {}
        self._entries: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._languages: dict[str, dict[str, int]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        domains = np.asarray(batch.column("domain").to_pylist(), dtype=object)
        held = batch.column(HELD_OUT).to_numpy(zero_copy_only=False)
        for domain in sorted(set(domains.tolist())):
            for split, mask in (("train", ~held), (HELD_OUT, held)):
                rows = np.flatnonzero((domains == domain) & mask)
                if len(rows):
                    self._add(domain, split, batch.take(pa.array(rows)))

    def _add(self, domain: str, split: str, batch: pa.RecordBatch) -> None:
        key = (domain, split)
        if key not in self._open:
            self._open[key] = ShardWriter(
                self._scratch,
                domain=domain,
                split=split,
                vocab_size=self._encoder.vocab_size,
                end_of_text=self._end_of_text,
                tokenizer_digest=self._encoder.digest,
                name=f"{domain}.{split}",
            )
        tokens = batch.column(TOKENS)
        offsets = np.asarray(tokens.offsets)
        self._open[key].add(np.asarray(tokens.values), offsets, batch)
        lengths = np.diff(offsets) + 1
        for language, count in zip(batch.column("language").to_pylist(), lengths.tolist(), strict=True):
            per_language = self._languages.setdefault(language, {"documents": 0, "tokens": 0})
            per_language["documents"] += 1
            per_language["tokens"] += count
        if self._open[key].nbytes >= self._run.recipe.shards.target_bytes:
            self._close(key)

    def _close(self, key: tuple[str, str]) -> None:
        domain, split = key
        files = self._open.pop(key).close()
        place = self._entries.setdefault(domain, {}).setdefault(split, [])
        folder, stem = f"{SHARDS}/{domain}/{split}", f"{self._unit}-{len(place):04d}"
        store = self._run.store
        tokens = store.publish(files.tokens_path, folder, f"{stem}.tokens", files.rows)
        documents = store.publish(files.documents_path, folder, f"{stem}.documents", files.rows)
        shard = ShardEntry(
            tokens=tokens.path.removeprefix(f"{SHARDS}/"),
            documents=documents.path.removeprefix(f"{SHARDS}/"),
            rows=files.rows,
            token_count=files.tokens,
            tokens_bytes=tokens.size,
            documents_bytes=documents.size,
            tokens_sha256=tokens.sha256,
            documents_sha256=documents.sha256,
        )
        place.append(shard.model_dump(mode="json"))
        for kind, entry in (("tokens", tokens), ("documents", documents)):
            self._files[f"{domain}/{split}/{len(place):04d}/{kind}"] = entry

    def commit(self) -> None:
        for key in sorted(self._open):
            self._close(key)
        statistics = {"shards": self._entries, "languages": dict(sorted(self._languages.items()))}
        self._run.commit("write", self._unit, self._files, statistics)

    def abandon(self) -> None:
        self._stack.close()


class Catalog(DriverPass):
    """Lists all shards in ``shards/manifest.json``, last of all: without it no trainer reads any of them."""

    name = "catalog"
    upstream = ("write", "tokenizer")

    def section(self, run: Run) -> Any:
        """Nothing beyond its upstream."""
        return []

    def work(self, run: Run) -> None:
        """Fold the units' shards and remove files that no unit names."""
        encoder, end_of_text = encoder_of(run)
        domains: dict[str, dict[str, list[ShardEntry]]] = {}
        wanted = {f"{SHARDS}/{CATALOG_NAME}"}
        for unit in run.manifest("write")["units"]:
            wanted |= {entry["path"] for entry in unit["files"].values()}
            for domain, splits in unit["statistics"]["shards"].items():
                for split, entries in splits.items():
                    place = domains.setdefault(domain, {}).setdefault(split, [])
                    place += [ShardEntry(**entry) for entry in entries]
        catalog = ShardCatalog(
            token_dtype=token_dtype(encoder.vocab_size).name,
            vocab_size=encoder.vocab_size,
            end_of_text=end_of_text,
            tokenizer=encoder.digest,
            domains={
                name: DomainShards(**{split: tuple(entries) for split, entries in splits.items()})
                for name, splits in sorted(domains.items())
            },
        )
        listing, data = f"{SHARDS}/{CATALOG_NAME}", catalog.to_json().encode()
        run.store.write_bytes(listing, data)
        for path in run.store.list(SHARDS):
            if path not in wanted:
                run.store.delete(path)
        statistics = {split: catalog.tokens_per_domain(split) for split in ("train", "held_out")}
        run.commit(self.name, self.UNIT, {"catalog": FileEntry.of(listing, data)}, statistics)
