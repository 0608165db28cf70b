"""*catalog*: the list of all shards, written last: without it, no trainer reads any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.beam.base import ALL, DriverPass, Inputs
from pipelines.beam.work_list import Output
from pipelines.passes.tokenizer import encoder_of
from pipelines.passes.write import SHARDS
from pipelines.workspace import Job
from shards.catalog import CATALOG_NAME, SUBSETS, DomainShards, ShardCatalog, ShardEntry
from shards.store import FileEntry
from shards.writer import token_dtype


@dataclass(frozen=True)
class Catalog(DriverPass):
    """Lists all shards in ``shards/manifest.json``."""

    name: ClassVar[str] = "catalog"

    shards: Output
    tokenizer: Output
    end_of_text: str

    def work(self, job: Job, inputs: Inputs) -> None:
        """Merge the shards of all units into one list."""
        encoder = encoder_of(job.root, inputs.file(self.tokenizer))
        domains: dict[str, dict[str, list[ShardEntry]]] = {}
        listing = f"{SHARDS}/{CATALOG_NAME}"
        for found in inputs.statistics(self.shards).values():
            for domain, subsets in found.items():
                for subset, entries in subsets.items():
                    shards = [ShardEntry(**entry) for entry in entries]
                    domains.setdefault(domain, {}).setdefault(subset, []).extend(shards)
        catalog = ShardCatalog(
            token_dtype=token_dtype(encoder.vocab_size).name,
            vocab_size=encoder.vocab_size,
            end_of_text=encoder.token_id(self.end_of_text, "recipe, key tokenizer.end_of_text"),
            tokenizer=encoder.digest,
            domains={
                name: DomainShards(**{subset: tuple(entries) for subset, entries in subsets.items()})
                for name, subsets in sorted(domains.items())
            },
        )
        data = catalog.to_json().encode()
        job.store.write_bytes(listing, data)
        tokens: dict[str, Any] = {subset: catalog.tokens_per_domain(subset) for subset in SUBSETS}
        job.commit(ALL, {"catalog": FileEntry.of(listing, data)}, tokens)
