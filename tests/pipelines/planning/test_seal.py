from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.planning.seal import copy_of, delete_others, read_parts, read_sealed, write_parts, write_sealed
from shards.errors import IncompleteError
from shards.store import Store

SCHEMA = pa.schema([("n", pa.int64())])


def parts(*counts: int) -> list[pa.Table]:
    return [pa.table({"n": range(count)}, schema=SCHEMA) for count in counts]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_parts_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    entries = write_parts(store, "kind", parts(3, 2))
    assert read_parts(store, entries, SCHEMA).column("n").to_pylist() == [0, 1, 2, 0, 1]
    assert [entry["rows"] for entry in entries] == [3, 2]
    assert read_parts(store, [], SCHEMA).schema == SCHEMA
    # Equal rows give equal bytes, however they came together.
    rows = pa.concat_tables(parts(1, 5)).slice(1, 3)
    assert write_parts(store, "kind", [rows])[0]["sha256"] == entries[0]["sha256"]


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_copy_stands_in_for_a_damaged_part(tmp_path: Path, damage: object) -> None:
    store = Store(tmp_path)
    (entry,) = write_parts(store, "kind", parts(3), twice=True)
    damage(tmp_path / entry["path"])  # type: ignore[operator]
    assert read_parts(store, [entry], SCHEMA).num_rows == 3
    damage(tmp_path / copy_of(entry["path"]))  # type: ignore[operator]
    with pytest.raises(IncompleteError, match=r"kind/00000-\w+\.arrow is not what was written"):
        read_parts(store, [entry], SCHEMA)
    write_parts(store, "kind", parts(3), twice=True)
    assert read_parts(store, [entry], SCHEMA).num_rows == 3


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (entry,) = write_parts(store, "kind", parts(3))
    before = (tmp_path / entry["path"]).stat()
    write_parts(store, "kind", parts(3))
    assert (tmp_path / entry["path"]).stat() == before


def test_a_sealed_value_survives_one_damaged_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert read_sealed(store, "plan/x.json") is None
    write_sealed(store, "plan/x.json", {"a": [1, 2], "ż": None})
    for path in ("plan/x.json", "plan/copy/x.json"):
        data = (tmp_path / path).read_bytes()
        (tmp_path / path).write_bytes(data.replace(b"1", b"3", 1))
        assert read_sealed(store, "plan/x.json") == {"a": [1, 2], "ż": None}
        (tmp_path / path).write_bytes(data)
    for path in ("plan/x.json", "plan/copy/x.json"):
        (tmp_path / path).write_bytes(b"{}")
    with pytest.raises(IncompleteError, match="nor is there a copy"):
        read_sealed(store, "plan/x.json")


def test_files_that_nothing_names_any_more_go(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_parts(store, "kind", parts(3), twice=True)
    kept = write_parts(store, "kind", parts(4), twice=True)
    write_parts(store, "other", parts(5))
    delete_others(store, "kind", kept)
    assert [path for path in store.list("plan") if "kind" in path] == [copy_of(kept[0]["path"]), kept[0]["path"]]
    assert len(store.list("plan/other")) == 1
