from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.planning.seen import SEEN_FILE, Seen
from shards.store import Store

FIRST = np.array([0, 3, 7], np.int64)
GLANCES = np.array([[5, 10, 11, 12], [6, 20, -1, -1], [7, -1, -1, -1]], np.int64)


def test_what_was_seen_is_told_from_what_was_touched(tmp_path: Path) -> None:
    Seen(FIRST, GLANCES).save(Store(tmp_path))
    seen = Seen.load(Store(tmp_path))
    assert seen.untouched(FIRST, GLANCES).tolist() == [True, True, True]
    for column in range(4):
        touched = GLANCES.copy()
        touched[:2, column] += 100
        # The last has no time at all: nothing can be said of it.
        assert seen.untouched(FIRST, touched).tolist() == [False, False, True]
    assert seen.untouched(np.array([1, 9], np.int64), GLANCES[:2]).tolist() == [False, False]
    assert Seen().untouched(FIRST, GLANCES).tolist() == [False, False, True]


@pytest.mark.parametrize("damage", ["flip", "cut", "text", "other"])
def test_a_damaged_table_is_none(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    assert len(Seen.load(store).first) == 0
    Seen(np.arange(1_000), np.arange(4_000).reshape(-1, 4)).save(store)
    path = tmp_path / SEEN_FILE
    data = path.read_bytes()
    for at in range(0, len(data), 97) if damage == "flip" else (0,):
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes({"flip": bytes(changed), "cut": data[:-9], "text": b"x", "other": b""}[damage])
        loaded = Seen.load(store)
        # A flip in what no value depends on, such as padding, changes nothing.
        assert len(loaded.first) == 0 or loaded.glances.tolist() == np.arange(4_000).reshape(-1, 4).tolist()
        assert damage == "flip" or len(loaded.first) == 0
