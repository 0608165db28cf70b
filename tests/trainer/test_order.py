from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.order import DEFAULT_WINDOW_SHARDS, DocumentOrder, epoch_key


@given(
    rows=st.lists(st.integers(0, 30), max_size=8),
    window=st.one_of(st.none(), st.integers(1, 9)),
    cuts=st.lists(st.integers(0, 240), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_reads_every_document_once(rows: list[int], window: int | None, cuts: list[int]) -> None:
    order = DocumentOrder(np.array(rows, np.int64), 5, window)
    assert order.documents == sum(rows)
    bounds = [0, *sorted(min(cut, sum(rows)) for cut in cuts), sum(rows)]
    parts = [order(start, stop) for start, stop in itertools.pairwise(bounds)]
    documents = np.concatenate(parts)
    assert sorted(documents.tolist()) == list(range(sum(rows)))
    assert documents.tolist() == order(0, sum(rows)).tolist()


@given(rows=st.lists(st.integers(1, 30), min_size=1, max_size=8), window=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_a_window_is_read_to_its_end_before_the_next(rows: list[int], window: int) -> None:
    documents = DocumentOrder(np.array(rows, np.int64), 5, window)(0, sum(rows))
    shards = np.searchsorted(np.cumsum(rows), documents, side="right").tolist()
    while shards:
        # As many documents as the window's shards hold, from no more shards than it has.
        first = list(dict.fromkeys(shards))[:window]
        count = sum(rows[shard] for shard in first)
        assert set(shards[:count]) <= set(shards) - set(shards[count:])
        assert len(set(shards[:count])) <= window
        shards = shards[count:]


def test_a_key_gives_its_own_order_of_shards_and_of_documents() -> None:
    rows = np.full(8, 25)
    orders = [DocumentOrder(rows, key)(0, 200).tolist() for key in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]
    windows = [DocumentOrder(rows, key, 1)(0, 200) // 25 for key in (1, 2)]
    assert [list(dict.fromkeys(w.tolist())) for w in windows] != [list(range(8))] * 2
    assert windows[0].tolist() != windows[1].tolist()


def test_few_shards_are_one_window_by_default_and_many_are_not() -> None:
    rows = np.array([3, 0, 9])
    assert DocumentOrder(rows, 4)(0, 12).tolist() == DocumentOrder(rows, 4, 3)(0, 12).tolist()
    assert DocumentOrder(rows, 4, 99)(0, 12).tolist() == DocumentOrder(rows, 4, 3)(0, 12).tolist()
    many = np.full(DEFAULT_WINDOW_SHARDS + 1, 2)
    total = int(many.sum())
    assert DocumentOrder(many, 4)(0, total).tolist() == DocumentOrder(many, 4, DEFAULT_WINDOW_SHARDS)(0, total).tolist()
    assert DocumentOrder(many, 4)(0, total).tolist() != DocumentOrder(many, 4, len(many))(0, total).tolist()


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 13)])
def test_positions_outside_are_refused(start: int, stop: int) -> None:
    with pytest.raises(IndexError, match="not within the 12 documents"):
        DocumentOrder(np.array([3, 0, 9]), 4)(start, stop)


def test_epochs_domains_and_seeds_have_keys_of_their_own() -> None:
    keys = {epoch_key(*path) for path in ((1, "web", 0), (1, "web", 1), (1, "code", 0), (2, "web", 0))}
    assert len(keys) == 4
    assert epoch_key(1, "web", 0) == epoch_key(1, "web", 0)
