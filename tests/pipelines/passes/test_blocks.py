from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.passes.blocks import HEAD, Blocks, read_block
from shards.errors import IncompleteError
from shards.store import Store
from tests.pipelines.support import flip

ROW = np.dtype([("key", "<u4"), ("doc_id", "<i8")])
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=12), max_size=5)


def filled(folder: Path, batches: list[list[tuple[int, int]]], buffer_bytes: int) -> Blocks:
    blocks = Blocks(folder, 5, buffer_bytes)
    for batch in batches:
        rows = np.array(batch, ROW)
        blocks.add(rows, rows["key"].astype(np.int64))
    return blocks


def expected(batches: list[list[tuple[int, int]]], block: int) -> list[tuple[int, int]]:
    return [row for batch in batches for row in batch if row[0] == block]


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, st.integers(0, 200))
def test_each_block_has_its_rows_in_order_whatever_memory_holds(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int]]], buffer_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    store = Store(folder / "store")
    names = set()
    for number, most in enumerate((buffer_bytes, 1 << 20)):
        with filled(folder / str(number), batches, most) as blocks:
            assert blocks.rows == sum(map(len, batches))
            for block in range(5):
                rows = expected(batches, block)
                assert np.frombuffer(b"".join(blocks.pieces(block)), ROW).tolist() == rows
                assert blocks.array(block, ROW).tolist() == rows
                assert blocks.size(block) == len(rows) * ROW.itemsize
            entry = blocks.publish(store, "pass/kind", "00000")
        names.add(entry.path)
        for block in range(5):
            assert np.frombuffer(read_block(store, entry, block), ROW).tolist() == expected(batches, block)
    # The bytes do not tell what had to be written to disk on the way.
    assert len(names) == 1


def test_what_memory_does_not_hold_is_on_disk(tmp_path: Path) -> None:
    rows = np.zeros(100_000, ROW)
    rows["key"] = np.arange(len(rows)) % 5
    with Blocks(tmp_path / "scratch", 5, 100_000) as blocks:
        for part in np.split(rows, 100):
            blocks.add(part, part["key"].astype(np.int64))
        assert (tmp_path / "scratch" / "spill.bin").stat().st_size > rows.nbytes - 200_000
        found = blocks.array(2, ROW)
        # Mapped, and its file has no name any more.
        assert isinstance(found.base, np.memmap)
        assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["spill.bin"]
        assert found.tolist() == rows[rows["key"] == 2].tolist()


def test_a_block_that_is_not_there(tmp_path: Path) -> None:
    with Blocks(tmp_path / "scratch", 2) as blocks, pytest.raises(AssertionError, match="no block 2 of 2"):
        blocks.append(2, b"x", 1)


@pytest.mark.parametrize("at", [HEAD.itemsize + 17, -1])
def test_a_flipped_bit_is_found_in_the_block_that_it_is_in(tmp_path: Path, at: int) -> None:
    batches = [[(0, 1)] * 20 + [(1, 2)] * 20]
    store = Store(tmp_path / "store")
    with filled(tmp_path / "scratch", batches, 1 << 20) as blocks:
        entry = blocks.publish(store, "pass/kind", "00000")
    # In the head of the second block, or in its last byte.
    flip(tmp_path / "store" / entry.path, (entry.size + at if at < 0 else at) / entry.size)
    assert len(read_block(store, entry, 0)) == 20 * ROW.itemsize
    with pytest.raises(IncompleteError, match="is not what was written"):
        read_block(store, entry, 1)
    assert store.exists(entry.path)
    repairing = Store(tmp_path / "store", repairs=True)
    with pytest.raises(IncompleteError, match="Run the recipe again"):
        read_block(repairing, entry, 1)
    assert not store.exists(entry.path)
    with pytest.raises(IncompleteError, match="is missing"):
        read_block(store, entry, 1)


def test_a_file_that_was_cut_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with filled(tmp_path / "scratch", [[(4, 1)] * 20], 1 << 20) as blocks:
        entry = blocks.publish(store, "pass/kind", "00000")
    path = tmp_path / "store" / entry.path
    for size in (entry.size - 1, 20):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(IncompleteError, match="is not what was written"):
            read_block(store, entry, 4)
