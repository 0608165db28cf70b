from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.reader import ShardSet
from tests.shards.small_shards import END, random_lengths, shards_of_lengths, tokens_of
from tests.trainer.tracing import Token, every_token, place_of
from trainer.batch import IGNORE, NO_DOCUMENT, Batch, Placed, StepPlan, assemble, micro_batches
from trainer.cursor import Cursor, Group


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    lengths = random_lengths(2, {"web": 70, "code": 40})
    return shards_of_lengths(tmp_path_factory.mktemp("shards"), lengths, {"web": [4, 9, 20]})


def epoch_of(shards: ShardSet, context: int, empty_rows: int = 0) -> StepPlan:
    """Plan a whole epoch of every domain as one step, with some rows of padding at the end."""
    placed: list[Placed] = []
    domains: list[int] = []
    for index, domain in enumerate(shards.domains):
        cursor = Cursor(shards, domain, 1, max_epochs=1)
        while (taken := cursor.take(context)) is not None:
            placed.append(Placed.of_group(*taken, np.array([len(domains)]), index))
            domains.append(index)
    domains += [NO_DOCUMENT] * empty_rows
    return StepPlan(context, shards.domains, np.array(domains, np.int64), Placed.joined(placed))


@pytest.mark.parametrize("context", [8, 31, 300])
def test_arrays_hold_what_the_shards_hold(shards: ShardSet, context: int) -> None:
    plan = epoch_of(shards, context, empty_rows=2)
    batch = assemble(shards, plan)
    shape = (plan.rows, context)
    assert plan.targets == (batch.targets != IGNORE).sum()
    assert plan.padding == (batch.document == NO_DOCUMENT).sum()
    ends = [place_of(plan, row, context - 1) for row in range(plan.rows)]
    cut = [place for place in ends if place and place[2] + 1 < len(tokens_of(shards, place[0], "train", place[1]))]
    assert plan.cut_documents == len(cut)
    assert batch.tokens.shape == batch.targets.shape == batch.document.shape == batch.positions.shape == shape
    targets: Counter[Token] = Counter()
    texts = {(d, n): tokens_of(shards, d, "train", n) for d, n, t in every_token(shards) if t == 0}
    for row in range(plan.rows):
        for column in range(context):
            place, target = place_of(plan, row, column), int(batch.targets[row, column])
            begins = column == 0 or batch.document[row, column - 1] != batch.document[row, column]
            assert (batch.positions[row, column] == 0) == begins
            assert begins or batch.positions[row, column] == batch.positions[row, column - 1] + 1
            if place is None:
                assert (batch.document[row, column], batch.tokens[row, column], target) == (-1, END, IGNORE)
                continue
            domain, document, token = place
            text = texts[domain, document]
            assert domain == plan.domains[batch.domain[row]]
            assert batch.tokens[row, column] == text[token]
            assert target == (text[token + 1] if token + 1 < len(text) else IGNORE)
            if target != IGNORE:
                targets[domain, document, token + 1] += 1
    assert targets == Counter({key: 1 for key in every_token(shards) if key[2] > 0})


def test_documents_of_a_row_are_numbered_in_order(shards: ShardSet) -> None:
    document = assemble(shards, epoch_of(shards, 64)).document
    for row in document:
        numbers = row[row >= 0]
        assert numbers[0] == 0
        assert set(np.diff(numbers).tolist()) <= {0, 1}
        assert (row[len(numbers) :] == -1).all()


@given(first=st.integers(0, 30), count=st.integers(0, 30))
@settings(max_examples=30, deadline=None)
def test_part_of_a_plan_gives_that_part_of_the_arrays(shards: ShardSet, first: int, count: int) -> None:
    plan = epoch_of(shards, 40, empty_rows=1)
    whole, rows = assemble(shards, plan), slice(first, first + count)
    part = assemble(shards, plan.part(rows))
    for name in ("tokens", "targets", "domain", "document", "positions"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[rows])


def test_rows_of_a_part_are_consecutive(shards: ShardSet) -> None:
    plan = epoch_of(shards, 40)
    with pytest.raises(ValueError, match="consecutive"):
        plan.part(slice(0, 8, 2))
    assert plan.part(slice(5, 2)).rows == 0


def test_held_out_documents_are_read_from_their_own_subset(shards: ShardSet) -> None:
    lengths = shards.locate("web", "held_out", np.arange(3)).length
    zeros, numbers = np.zeros(3, np.int64), np.arange(3)
    placed = Placed(zeros, np.cumsum(lengths) - lengths, zeros + 1, numbers, zeros, lengths, zeros == 0)
    plan = StepPlan(40, shards.domains, np.array([1]), placed)
    batch: Batch = assemble(shards, plan, "held_out")
    expected = [token for number in range(3) for token in tokens_of(shards, "web", "held_out", number).tolist()]
    assert batch.tokens[0, : len(expected)].tolist() == expected
    assert (batch.tokens[0, len(expected) :] == END).all()


def test_a_group_is_placed_from_any_of_its_rows(shards: ShardSet) -> None:
    cursor = Cursor(shards, "web", 1)
    taken = cursor.take(30)
    assert taken is not None
    group: Group = taken[0]
    together = Placed.of_group(group, 2, np.array([5, 7, 8]), 1)
    apart = Placed.joined([Placed.of_group(group, 2 + i, np.array([row]), 1) for i, row in ((2, 8), (0, 5), (1, 7))])
    for name in Placed.__dataclass_fields__:
        assert getattr(together, name).tolist() == getattr(apart, name).tolist()
    assert set(together.row.tolist()) == {5, 7, 8}


@given(rows=st.integers(1, 50), size=st.integers(1, 9), ranks=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_micro_batches_cover_the_rows_once(rows: int, size: int, ranks: int) -> None:
    per_rank = [micro_batches(rows, size, rank, ranks) for rank in range(ranks)]
    covered = [row for parts in per_rank for part in parts for row in range(part.start, part.stop)]
    assert covered == list(range(rows))
    assert max(map(len, per_rank)) - min(map(len, per_rank)) <= 1
    assert per_rank[0]
    assert [part for parts in per_rank for part in parts] == micro_batches(rows, size, 0, 1)
