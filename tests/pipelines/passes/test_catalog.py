from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shards.catalog import SUBSETS
from shards.errors import IncompleteError
from shards.reader import ShardSet
from tests.pipelines.support import content, forget, redone


def test_the_catalogue_names_every_shard_and_nothing_else_is_left(made: Any) -> None:
    shards = ShardSet.open(made.root / "shards")
    entries = [entry for domain in shards.domains for subset in SUBSETS for entry in shards.entries(domain, subset)]
    named = {path for entry in entries for path in (entry.tokens, entry.documents)}
    found = {path.relative_to(made.root / "shards").as_posix() for path in (made.root / "shards").rglob("*.arrow")}
    assert named == {path for path in found if not path.startswith("index/")}
    assert shards.catalog.tokens_per_domain("train") == made.statistics("catalog")["train"]


def test_the_index_holds_the_lengths_of_every_document(made: Any) -> None:
    shards = ShardSet.open(made.root / "shards")
    documents = 0
    for domain in shards.domains:
        for subset in SUBSETS:
            lengths: list[int] = []
            for entry in shards.entries(domain, subset):
                batch = pa.ipc.open_file(made.root / "shards" / entry.tokens).get_batch(0)
                lengths += np.diff(np.asarray(batch.column("tokens").offsets)).tolist()
            numbers = np.arange(shards.documents(domain, subset))
            assert shards.lengths(domain, subset, numbers).tolist() == lengths
            documents += len(lengths)
    assert documents > 50
    assert shards.verify() > 0


def test_shards_follow_units_in_order(made: Any) -> None:
    shards = ShardSet.open(made.root / "shards")
    for domain in shards.domains:
        for subset in SUBSETS:
            paths = [entry.tokens for entry in shards.entries(domain, subset)]
            assert paths == sorted(paths)


@pytest.mark.parametrize("folder", ["web/train", "index"])
def test_a_stray_file_is_removed(corpus: Any, run_recipe: Any, copied: Any, folder: str) -> None:
    stray = copied / "shards" / folder / "of-an-attempt-that-died.tokens.arrow"
    stray.write_bytes(b"x")
    forget(copied, "catalog")
    run_recipe(copied, corpus.recipe(), corpus.folder)
    assert not stray.exists()


def test_lengths_that_changed_are_found_and_their_unit_alone_made_anew(
    corpus: Any, run_recipe: Any, copied: Path
) -> None:
    before = content(copied)
    damaged = max((copied / "shards").rglob("*.documents-*.arrow"), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    lengths = np.asarray(pa.ipc.open_file(pa.py_buffer(bytes(data))).get_batch(0).column("tokens"))
    at = data.index(lengths.tobytes())
    # Two flips that leave the sum as it is.
    changed = lengths.copy()
    changed[0] += 1
    changed[1] -= 1
    data[at : at + changed.nbytes] = changed.tobytes()
    damaged.write_bytes(data)
    forget(copied, "catalog")
    with pytest.raises(IncompleteError, match="is not what was written") as caught:
        run_recipe(copied, corpus.recipe(), corpus.folder)
    assert damaged.name in str(caught.value)
    assert caught.value.remedy.startswith("Run the recipe again")
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert again.notes.ended["write"].startswith("1 unit in")
    assert redone(again) == {"write", "catalog"}
    assert content(copied) == before
