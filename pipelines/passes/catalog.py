"""*catalog*: the list of all shards, written last: without it, no trainer reads any of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam.base import ALL, DriverPass, Inputs
from pipelines.beam.work_list import Output
from pipelines.passes.tokenizer import encoder_of
from pipelines.passes.write import SHARDS
from pipelines.workspace import Job
from shards.catalog import (
    CATALOG_NAME,
    INDEX_FOLDER,
    SUBSETS,
    DomainShards,
    IndexFile,
    ShardCatalog,
    ShardEntry,
    Subset,
    SubsetShards,
)
from shards.listing import write_index
from shards.store import FileEntry, Store
from shards.writer import COMPANION, lengths_sha256, token_dtype

_LENGTHS = COMPANION.get_field_index("tokens")


@dataclass(frozen=True)
class Catalog(DriverPass):
    """Lists the shards and their documents' lengths in ``shards/index``, and the lists in ``shards/manifest.json``."""

    name: ClassVar[str] = "catalog"
    version: ClassVar[int] = 2
    folders: ClassVar[tuple[str, ...]] = (f"{SHARDS}/{INDEX_FOLDER}",)

    shards: Output
    tokenizer: Output
    end_of_text: str

    def work(self, job: Job, inputs: Inputs) -> None:
        """Fold the units' shards."""
        encoder = encoder_of(job.root, inputs.file(self.tokenizer), self.end_of_text)
        found: dict[str, dict[Subset, list[ShardEntry]]] = {}
        for domains in inputs.statistics(self.shards).values():
            for domain, subsets in domains.items():
                for subset, entries in subsets.items():
                    shards = [ShardEntry(**entry) for entry in entries]
                    found.setdefault(domain, {}).setdefault(subset, []).extend(shards)
        files: dict[str, FileEntry] = {}
        indexed = {
            domain: DomainShards(
                **{subset: _index(job.store, domain, subset, subsets[subset], files) for subset in subsets}
            )
            for domain, subsets in sorted(found.items())
        }
        catalog = ShardCatalog(
            token_dtype=token_dtype(encoder.vocab_size).name,
            vocab_size=encoder.vocab_size,
            end_of_text=encoder.token_id(self.end_of_text, "recipe, key tokenizer.end_of_text"),
            tokenizer=encoder.digest,
            domains=indexed,
        )
        data, path = catalog.to_json().encode(), f"{SHARDS}/{CATALOG_NAME}"
        job.store.write_bytes(path, data)
        tokens: dict[str, Any] = {subset: catalog.tokens_per_domain(subset) for subset in SUBSETS}
        job.commit(ALL, {"catalog": FileEntry.of(path, data), **files}, tokens)


def _index(
    store: Store, domain: str, subset: Subset, entries: list[ShardEntry], files: dict[str, FileEntry]
) -> SubsetShards:
    """Publish the list of shards and the index of lengths of one domain and subset, and add them to ``files``."""
    with store.scratch() as scratch:
        made = write_index(Path(scratch), domain, subset, entries, lambda entry: _lengths(store, entry))
        folder, stem = f"{SHARDS}/{INDEX_FOLDER}", f"{domain}.{subset}"
        listing = store.publish(made.listing, folder, stem, made.shards)
        lengths = store.publish(made.lengths, folder, stem, made.documents)
    files |= {f"{domain}/{subset}/listing": listing, f"{domain}/{subset}/lengths": lengths}
    return SubsetShards(
        shards=made.shards,
        documents=made.documents,
        tokens=made.tokens,
        listing=_relative(listing),
        lengths=_relative(lengths),
    )


def _relative(entry: FileEntry) -> IndexFile:
    return IndexFile(path=entry.path.removeprefix(f"{SHARDS}/"), size=entry.size, sha256=entry.sha256)


def _lengths(store: Store, entry: ShardEntry) -> npt.NDArray[Any]:
    """Return the tokens of each document of a shard, from one column of its companion, compared with their checksum.

    Raises:
        IncompleteError: if the companion is missing, or the column is not what was written.
    """
    path = f"{SHARDS}/{entry.documents}"
    options = pa.ipc.IpcReadOptions(included_fields=[_LENGTHS])
    # Twice before it is called damaged: what came over a network may have been cut short.
    for _ in range(2):
        try:
            with store.open(path) as file, pa.ipc.open_file(file, options=options) as reader:
                lengths = np.array(reader.get_batch(0).column(0))
        except (pa.ArrowException, IndexError):
            continue
        if lengths.dtype == np.int32 and lengths_sha256(lengths) == entry.lengths_sha256:
            return lengths
    raise store.damaged(path)
