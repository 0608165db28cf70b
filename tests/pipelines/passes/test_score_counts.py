from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.passes import score_counts
from pipelines.passes.score_counts import MOST_NAMES, SCORES, bins_of, count_scores, end_of
from stages.base import score_column, stage
from stages.checks import Check
from stages.scores import Category, Count, Log10, Ratio

NUMBERS = (Count("n"), Ratio("n"), Log10("n"))
steps = st.integers(-(10**15), 10**15)


@stage
class Lengths:
    name: ClassVar[str] = "lengths_v1"
    scores = (Count("words"), Ratio("digits"))
    checks = (
        Check("short", "words", min="min_words"),
        Check("long", "words", max=900),
        Check("digits", "digits", max=1),
    )
    min_words: float = 5

    def measure(self, batch: pa.RecordBatch) -> dict[str, Any]:
        raise NotImplementedError


@stage
class Topics:
    name: ClassVar[str] = "topics_v1"
    scores = (Category("topic"),)
    checks = (Check("unwanted", "topic", forbidden="bad"),)
    bad: tuple[str, ...] = ("spam",)

    def measure(self, batch: pa.RecordBatch) -> dict[str, Any]:
        raise NotImplementedError


CHAIN: Any = (Lengths(), Topics())


def table(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"dropped_by": pa.string(), "reason": pa.string(), "failed": pa.bool_()}
    kinds |= {score_column(one, score.name): score.type for one in CHAIN for score in one.scores}
    return pa.Table.from_pylist([{"failed": False, **row} for row in rows], pa.schema(list(kinds.items())))


def merged(*tables: pa.Table) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for one in tables:
        for row in one.to_pylist():
            key = row["score"], row["bin"], row["name"]
            found[(*key, "rows")] += row["rows"]
            found[(*key, "dropped")] += row["dropped"]
    return +found


@given(st.sampled_from(NUMBERS), st.lists(steps, min_size=1))
def test_a_bin_holds_the_step_that_is_in_it(score: Any, given_steps: list[int]) -> None:
    found = bins_of(score, np.array(given_steps, np.int64))
    for step, start in zip(given_steps, found.tolist(), strict=True):
        end = end_of(score, start)
        assert start <= step
        assert end is None or step < end
        # All steps of a bin are in it: so counts of splits add up.
        inside = np.array([start, (end or step + 1) - 1], np.int64)
        assert bins_of(score, inside).tolist() == [start, start]


@pytest.mark.parametrize(
    ("score", "low", "high", "most"),
    [(Ratio("share"), 0, 10_000, 101), (Count("words"), 0, 1_000_000, 121), (Log10("perplexity"), 0, 60_000, 121)],
)
def test_a_score_has_few_bins(score: Any, low: int, high: int, most: int) -> None:
    assert len(np.unique(bins_of(score, np.arange(low, high + 1)))) <= most


def test_limits_that_people_write_are_where_bins_begin() -> None:
    for score, numbers in ((Ratio("n"), (0.01, 0.65, 0.8, 1, 2, 2.5, 10)), (Count("n"), (1, 2, 20, 50, 100, 100_000))):
        at = np.array([score.step_of(number) for number in numbers], np.int64)
        assert bins_of(score, at).tolist() == at.tolist()


@pytest.mark.parametrize("score", NUMBERS)
def test_the_smallest_and_the_largest_int64_have_a_bin(score: Any) -> None:
    ends = np.array([np.iinfo(np.int64).min + 500, np.iinfo(np.int64).max - 500], np.int64)
    first, last = bins_of(score, ends).tolist()
    assert first < 0 < last


fates = st.sampled_from(
    [
        (None, None, False),
        ("read", "empty", False),
        ("lengths_v1", "short", False),
        ("lengths_v1", "long", False),
        ("lengths_v1", "digits", False),
        ("lengths_v1", "stage_error", True),
        ("topics_v1", "unwanted", False),
        ("lengths_v1:late", "long", False),
        ("exact_dedup_v1", "exact_duplicate", False),
    ]
)
records = st.lists(
    st.tuples(
        fates,
        st.none() | st.integers(0, 1000),
        st.none() | st.floats(0, 3),
        st.none() | st.sampled_from(["spam", "news", "x" * 100, "x" * 100 + "y"]),
    ),
    max_size=30,
)


def rows_of(drawn: list[Any]) -> list[dict[str, Any]]:
    found = []
    for (by, reason, failed), words, digits, topic in drawn:
        scores = {"lengths_v1.words": words, "lengths_v1.digits": digits and round(digits, 4), "topics_v1.topic": topic}
        if by == "read":
            scores = dict.fromkeys(scores)
        found.append({"dropped_by": by, "reason": reason, "failed": failed, **scores})
    return found


def slow_counts(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The same, document by document."""
    found: Counter[tuple[Any, ...]] = Counter()
    of = {"words": {"short", "long"}, "digits": {"digits"}, "topic": {"unwanted"}}
    for row in rows:
        for one in CHAIN:
            for score in one.scores:
                column = score_column(one, score.name)
                value = row[column]
                if value is None:
                    continue
                if score.is_number:
                    step = score.steps(pa.array([value], score.type))
                    key = column, int(bins_of(score, step)[0]), None
                else:
                    key = column, None, value[:64]
                mine = (row["dropped_by"] or "").removesuffix(":late") == one.name and not row["failed"]
                found[(*key, "rows")] += 1
                found[(*key, "dropped")] += mine and row["reason"] in of[score.name]
            if row["dropped_by"] == one.name:
                break
    return +found


@given(records, st.integers(0, 30))
def test_counts_are_those_of_the_documents_one_by_one_however_they_are_split(drawn: list[Any], at: int) -> None:
    rows = rows_of(drawn)
    whole = count_scores(table(rows), CHAIN)
    assert whole.schema.equals(SCORES)
    assert merged(whole) == slow_counts(rows)
    assert merged(count_scores(table(rows[:at]), CHAIN), count_scores(table(rows[at:]), CHAIN)) == merged(whole)
    # The order of documents does not reach the table.
    assert count_scores(table(rows[::-1]), CHAIN).equals(whole)


def test_what_a_tightened_check_drops_has_no_later_score() -> None:
    row = {"dropped_by": "lengths_v1", "reason": "short", "lengths_v1.words": 3, "topics_v1.topic": "news"}
    assert count_scores(table([row]), CHAIN).column("score").to_pylist() == ["lengths_v1.words"]


def test_rare_names_are_counted_together() -> None:
    names = [f"topic {n:03d}" for n in range(MOST_NAMES + 5)]
    rows = [{"topics_v1.topic": name} for name in [*names, *names[3:]]]
    found = count_scores(table(rows), CHAIN).to_pylist()
    assert len(found) == MOST_NAMES + 1
    assert found[-1] == {"score": "topics_v1.topic", "bin": None, "name": None, "rows": 2 * 2 + 3, "dropped": 0}
    assert [row["name"] for row in found[:-1]] == names[3 : MOST_NAMES + 3]


def test_the_preferred_numbers_are_a_decade_of_about_equal_ratios() -> None:
    decade = [*score_counts._R20, 1000]
    ratios = [after / before for before, after in itertools.pairwise(decade)]
    assert len(ratios) == 20
    assert 1.09 < min(ratios) <= max(ratios) < 1.15
