from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.packing import PackedRows, Spans, pack

lengths_of_documents = st.lists(st.integers(1, 90), max_size=60)


def slots(packed: PackedRows) -> list[list[tuple[int, int]]]:
    """Every row as its (document, token) pairs."""
    spans = packed.spans
    rows = []
    for row in range(packed.rows):
        begin, end = packed.offsets[row], packed.offsets[row + 1]
        rows.append(
            [
                (int(spans.slot[i]), token)
                for i in range(begin, end)
                for token in range(int(spans.start[i]), int(spans.start[i] + spans.length[i]))
            ]
        )
    return rows


def best_fit(lengths: list[int], context: int) -> int:
    """Rows of textbook best-fit decreasing."""
    room: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [(gap, row) for row, gap in enumerate(room) if gap >= length]
        if fitting:
            room[min(fitting)[1]] -= length
        else:
            room.append(context - length)
    return len(room)


@given(lengths=lengths_of_documents, context=st.integers(1, 40), key=st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_every_token_is_in_exactly_one_row(lengths: list[int], context: int, key: int) -> None:
    rows = slots(pack(Spans.whole(np.array(lengths, np.int64)), context, key))
    assert sorted(pair for row in rows for pair in row) == [(d, t) for d, n in enumerate(lengths) for t in range(n)]
    assert all(1 <= len(row) <= context for row in rows)


@given(lengths=lengths_of_documents, context=st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_rows_are_as_many_as_best_fit_decreasing_needs(lengths: list[int], context: int) -> None:
    pieces = [min(context, n - at) for n in lengths for at in range(0, n, context)]
    assert pack(Spans.whole(np.array(lengths, np.int64)), context, 1).rows == best_fit(pieces, context)


@given(lengths=lengths_of_documents, context=st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_a_document_is_cut_only_where_it_must_be(lengths: list[int], context: int) -> None:
    spans = pack(Spans.whole(np.array(lengths, np.int64)), context, 1).spans
    pieces = np.bincount(spans.slot, minlength=len(lengths))
    assert pieces.tolist() == [-(-n // context) for n in lengths]


@given(
    lengths=lengths_of_documents,
    contexts=st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=1, max_size=4),
)
@settings(max_examples=80, deadline=None)
def test_packing_the_rest_anew_serves_every_token_once(lengths: list[int], contexts: list[tuple[int, float]]) -> None:
    spans = Spans.whole(np.array(lengths, np.int64))
    served: list[tuple[int, int]] = []
    for number, (context, share) in enumerate(contexts):
        packed = pack(spans, context, number)
        count = packed.rows if number == len(contexts) - 1 else int(share * packed.rows)
        served += [pair for row in slots(packed)[:count] for pair in row]
        spans = packed.after(count).merged()
    assert sorted(served) == [(d, t) for d, n in enumerate(lengths) for t in range(n)]


@given(lengths=lengths_of_documents, context=st.integers(1, 40), key=st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_merging_undoes_cutting(lengths: list[int], context: int, key: int) -> None:
    merged = pack(Spans.whole(np.array(lengths, np.int64)), context, key).spans.merged()
    assert merged.slot.tolist() == list(range(len(lengths)))
    assert merged.length.tolist() == lengths
    assert not merged.start.any()


def test_rows_are_shuffled_by_the_key() -> None:
    lengths = np.random.default_rng(3).integers(1, 600, 2_000)
    orders = [pack(Spans.whole(lengths), 512, key) for key in (1, 2)]
    assert orders[0].rows == orders[1].rows
    assert sorted(slots(orders[0])) == sorted(slots(orders[1]))
    assert orders[0].spans.slot.tolist() != orders[1].spans.slot.tolist()
    # Best fit makes full rows of long documents first; shuffled, the longest are not at the front.
    first = np.maximum.reduceat(orders[0].spans.length, orders[0].offsets[:-1])
    assert abs(first[: len(first) // 2].mean() / first.mean() - 1) < 0.05


def test_groups_of_the_usual_size_fill_their_rows() -> None:
    generator = np.random.default_rng(5)
    for context, median in ((512, 300), (2_048, 400), (32_768, 400)):
        lengths = np.maximum(2, generator.lognormal(np.log(median), 1.0, 128 * context // median)).astype(np.int64)
        packed = pack(Spans.whole(lengths), context, 0)
        assert lengths.sum() / (packed.rows * context) > 0.99
