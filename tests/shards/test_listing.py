from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shards.catalog import ShardCatalog
from shards.errors import IncompleteError
from shards.listing import LISTING, entries_of, open_listing, read_listing, write_index
from shards.reader import ShardSet
from tests.shards.small_shards import Written, flip, write_catalog, write_shard


def shards_in(folder: Path) -> list:
    entries = [write_shard(folder, str(number), [[1, 2], [3] * number], domain="web") for number in range(3)]
    write_catalog(folder, {"web": Written(train=entries)})
    return entries


def test_a_list_holds_its_entries_in_order(tmp_path: Path) -> None:
    entries = shards_in(tmp_path)
    said = ShardCatalog.load(tmp_path).domains["web"].train
    assert said is not None
    listing = open_listing(tmp_path, said)
    assert entries_of(listing) == entries
    assert entries_of(listing, [2, 0]) == [entries[2], entries[0]]
    assert (said.shards, said.documents, said.tokens) == (3, 6, sum(entry.token_count for entry in entries))


def test_any_damage_to_a_list_is_found_when_it_is_opened(tmp_path: Path) -> None:
    shards_in(tmp_path)
    path = tmp_path / "index" / "web.train.arrow"
    good = path.read_bytes()
    for at in np.linspace(0, 0.999, 23):
        flip(path, float(at))
        with pytest.raises(IncompleteError, match=r"web\.train\.arrow is not what was written") as caught:
            ShardSet.open(tmp_path)
        assert caught.value.place == str(path)
        path.write_bytes(good)
    path.write_bytes(b"")
    with pytest.raises(IncompleteError, match=r"web\.train\.arrow"):
        ShardSet.open(tmp_path)
    path.unlink()
    with pytest.raises(IncompleteError, match=r"web\.train\.arrow cannot be read"):
        ShardSet.open(tmp_path)


def test_lengths_must_be_those_of_the_shard(tmp_path: Path) -> None:
    entry = shards_in(tmp_path)[2]
    for lengths in ([3], [3, 4], [3, 3, 0]):
        with pytest.raises(ValueError, match=r"lengths of 2\.documents\.arrow are not those of 2\.tokens\.arrow"):
            write_index(tmp_path, "web", "train", [entry], lambda _, found=lengths: np.array(found))


def test_what_is_no_list_is_refused() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, LISTING):
        pass
    with pytest.raises(ValueError, match="columns of a list"):
        read_listing(sink.getvalue())
