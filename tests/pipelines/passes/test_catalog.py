from __future__ import annotations

from typing import Any

from shards.catalog import SUBSETS, ShardCatalog
from tests.pipelines.support import forget


def test_the_catalogue_names_every_shard_and_nothing_else_is_left(made: Any) -> None:
    catalog = ShardCatalog.load(made.root / "shards")
    entries = [entry for shards in catalog.domains.values() for subset in SUBSETS for entry in shards.entries(subset)]
    named = {path for entry in entries for path in (entry.tokens, entry.documents)}
    found = {path.relative_to(made.root / "shards").as_posix() for path in (made.root / "shards").rglob("*.arrow")}
    assert named == found
    assert catalog.tokens_per_domain("train") == made.statistics("catalog")["train"]


def test_shards_follow_units_in_order(made: Any) -> None:
    for shards in ShardCatalog.load(made.root / "shards").domains.values():
        for subset in SUBSETS:
            paths = [entry.tokens for entry in shards.entries(subset)]
            assert paths == sorted(paths)


def test_a_stray_shard_is_removed(corpus: Any, run_recipe: Any, copied: Any) -> None:
    stray = copied / "shards" / "web" / "train" / "of-an-attempt-that-died.tokens.arrow"
    stray.write_bytes(b"x")
    forget(copied, "catalog")
    run_recipe(copied, corpus.recipe(), corpus.folder)
    assert not stray.exists()
