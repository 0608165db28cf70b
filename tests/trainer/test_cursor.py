from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.reader import ShardSet
from tests.shards.small_shards import lengths_of, random_lengths, shards_of_lengths
from trainer import cursor as cursor_module
from trainer.cursor import GROUP_DOCUMENTS, Cursor, CursorState, Group, group_documents
from trainer.packing import Spans, pack


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    lengths = random_lengths(5, {"web": 420, "few": 20})
    return shards_of_lengths(tmp_path_factory.mktemp("shards"), {**lengths, "none": []})


@pytest.fixture(autouse=True)
def _several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its usual size, one group would hold all of these few documents."""
    monkeypatch.setattr(cursor_module, "MAX_GROUP_ROWS", 0)


def tokens_in(group: Group, row: int) -> list[tuple[int, int]]:
    """The (document, token) pairs of a row."""
    spans = group.rows.spans.take(slice(int(group.rows.offsets[row]), int(group.rows.offsets[row + 1])))
    return [
        (int(group.documents[slot]), token)
        for slot, start, length in zip(spans.slot, spans.start, spans.length, strict=True)
        for token in range(int(start), int(start + length))
    ]


def serve(cursor: Cursor, contexts: list[int]) -> list[list[tuple[int, int]]]:
    """Serve one row at each context length, as far as there are rows."""
    taken = [cursor.take(context) for context in contexts]
    return [tokens_in(*one) for one in taken if one is not None]


def serve_all(cursor: Cursor, contexts: list[int]) -> list[list[tuple[int, int]]]:
    """Serve every row, at context lengths that come round again and again."""
    rows = []
    while (taken := cursor.take(contexts[len(rows) % len(contexts)])) is not None:
        rows.append(tokens_in(*taken))
    return rows


@given(
    contexts=st.lists(st.sampled_from([8, 16, 40, 128]), min_size=1, max_size=12),
    epochs=st.integers(1, 2),
    domain=st.sampled_from(["web", "few"]),
    window=st.sampled_from([None, 1, 2]),
)
@settings(max_examples=12, deadline=None)
def test_epochs_serve_every_token_that_often_at_any_contexts(
    shards: ShardSet, contexts: list[int], epochs: int, domain: str, window: int | None
) -> None:
    cursor = Cursor(shards, domain, 3, max_epochs=epochs, window_shards=window)
    rows = serve_all(cursor, contexts)
    assert all(0 < len(row) <= max(contexts) for row in rows)
    seen = Counter(pair for row in rows for pair in row)
    assert seen == Counter(
        {(d, t): epochs for d, length in enumerate(lengths_of(shards, domain)) for t in range(length)}
    )
    assert cursor.done
    assert cursor.take(8) is None


def test_a_cursor_restored_from_any_state_serves_the_same_rows(shards: ShardSet) -> None:
    contexts = [16] * 9 + [40] * 7 + [16] * 30 + [128] * 3
    cursor = Cursor(shards, "web", 3)
    states, rows = [], []
    for context in contexts:
        states.append(json.dumps(asdict(cursor.state)))
        rows += serve(cursor, [context])
    assert len(rows) == len(contexts)
    for number, text in enumerate(states):
        state = json.loads(text)
        state["packings"] = [tuple(packing) for packing in state["packings"]]
        again = Cursor(shards, "web", 3, state=CursorState(**state))
        assert json.dumps(asdict(again.state)) == text
        assert serve(again, contexts[number : number + 4]) == rows[number : number + 4]


def test_the_state_is_a_copy(shards: ShardSet) -> None:
    cursor = Cursor(shards, "web", 3)
    serve(cursor, [16])
    before = cursor.state
    serve(cursor, [16])
    assert before.packings == [(16, 1)]
    assert cursor.state.packings == [(16, 2)]


def test_groups_cover_an_epoch_in_order_and_the_last_is_not_short(shards: ShardSet) -> None:
    cursor = Cursor(shards, "web", 3, max_epochs=1)
    groups: list[tuple[int, int]] = []
    while cursor.take(8) is not None:
        place = (cursor.state.start, cursor.state.count)
        if not groups or groups[-1] != place:
            groups.append(place)
    assert len(groups) > 2
    assert [start for start, _ in groups] == np.cumsum([0, *(count for _, count in groups[:-1])]).tolist()
    assert sum(count for _, count in groups) == shards.documents("web")
    assert min(count for _, count in groups) >= GROUP_DOCUMENTS


def test_epochs_have_orders_of_their_own(shards: ShardSet) -> None:
    cursor = Cursor(shards, "few", 3)
    rows: dict[int, list[list[tuple[int, int]]]] = {}
    while cursor.state.epoch < 2:
        taken = cursor.take(16)
        assert taken is not None
        rows.setdefault(cursor.state.epoch, []).append(tokens_in(*taken))
    assert rows[0] != rows[1]
    assert sorted(p for row in rows[0] for p in row) == sorted(p for row in rows[1] for p in row)
    assert serve(Cursor(shards, "few", 4), [16] * 5) != rows[0][:5]


def test_a_domain_without_documents_is_done_at_once(shards: ShardSet) -> None:
    cursor = Cursor(shards, "none", 3)
    assert cursor.done
    assert cursor.take(16) is None
    assert cursor.state == CursorState()


def test_without_a_limit_a_cursor_is_never_done(shards: ShardSet) -> None:
    cursor = Cursor(shards, "few", 3)
    for _ in range(200):
        assert not cursor.done
        assert cursor.take(16) is not None
    assert cursor.state.epoch > 1
    assert shards.token_count("few") < 200 * 16


@pytest.mark.parametrize(("context", "fill"), [(2_048, 0.999), (8_192, 0.997), (32_768, 0.99)])
@pytest.mark.parametrize(("mean", "spread"), [(1_000, 1.0), (600, 1.2), (800, 1.4)])
def test_groups_of_web_like_documents_fill_their_rows(
    monkeypatch: pytest.MonkeyPatch, context: int, fill: float, mean: int, spread: float
) -> None:
    monkeypatch.undo()
    count = group_documents(context, 1_000, 1_000 * mean)
    rng = np.random.default_rng(3)
    rows = tokens = 0
    for key in range(4):
        # The mean of a log-normal is exp(mu + sigma^2 / 2).
        lengths = np.maximum(1, rng.lognormal(np.log(mean) - spread**2 / 2, spread, count)).astype(np.int64)
        rows += pack(Spans.whole(lengths), context, key).rows
        tokens += int(lengths.sum())
    assert tokens / (rows * context) >= fill
