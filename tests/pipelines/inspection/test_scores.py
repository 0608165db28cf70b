from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.inspection import score_tables
from pipelines.inspection.scores import QUANTILES, Bin, Histogram, histograms, histograms_by
from pipelines.inspection.wording import Limit
from pipelines.passes.score_counts import bins_of, end_of
from shards.errors import UserError
from stages.checks import Check
from stages.limits import Bound, percentile_step
from stages.scores import Category, Count, Log10, Ratio, Score

CHECK = Check("reason", "n")


def histogram(score: Score, steps: list[int], *limits: Limit) -> Histogram:
    starts, rows = np.unique(bins_of(score, np.array(steps, np.int64)), return_counts=True)
    bins = [Bin(start, None, many, 0) for start, many in zip(starts.tolist(), rows.tolist(), strict=True)]
    return Histogram("s_v1", score, "s_v1.n", limits, tuple(bins))


scores = st.sampled_from([Count("n"), Ratio("n"), Log10("n")])
steps = st.lists(st.integers(-5, 30_000), min_size=1, max_size=50)


@given(scores, steps, st.integers(0, 30_000), st.sampled_from(["min", "max"]))
def test_what_is_beyond_a_limit_is_between_the_bounds(score: Score, drawn: list[int], step: int, end: Any) -> None:
    limit = Limit(CHECK, score, end, Bound(default=step))
    found = histogram(score, drawn, limit).beyond(limit)
    assert found is not None
    fewest, most = found
    exact = sum(one < step if end == "min" else one > step for one in drawn)
    assert fewest <= exact <= most
    # No wider than the documents of the one bin that the limit is in.
    inside = int(bins_of(score, np.array([step]))[0])
    assert most - fewest <= sum(inside == one for one in bins_of(score, np.array(drawn)).tolist())


def test_a_limit_where_a_bin_begins_is_exact() -> None:
    limit = Limit(CHECK, Count("n"), "min", Bound(default=50))
    assert histogram(Count("n"), [49, 50, 51, 3], limit).beyond(limit) == (2, 2)


def test_a_limit_by_group_says_nothing_of_a_bin() -> None:
    limit = Limit(CHECK, Count("n"), "min", Bound("language", {"de": 3}, 5))
    assert histogram(Count("n"), [1, 4], limit).beyond(limit) is None


@given(scores, steps, st.sampled_from(QUANTILES))
def test_a_percentile_is_in_the_bin_that_is_named(score: Score, drawn: list[int], percent: float) -> None:
    start = histogram(score, drawn).quantile(percent)
    exact = percentile_step(sorted(drawn), [1] * len(drawn), percent)
    assert start is not None
    end = end_of(score, start)
    assert start <= exact
    assert end is None or exact < end


def test_counts_of_a_run_are_those_of_its_verdicts(made: Any) -> None:
    rows = made.verdicts()
    found = {one.column: one for one in histograms(made.run)}
    assert {name for name in rows[0] if "." in name} == set(found)
    for name, one in found.items():
        have = [row for row in rows if row[name] is not None]
        assert one.rows == len(have)
        reasons = {limit.check.reason for limit in one.limits}
        mine = [row for row in have if (row["dropped_by"] or "").split(":")[0] == one.link and row["reason"] in reasons]
        assert one.dropped == len(mine)
    perplexity = found["perplexity_v1.perplexity"]
    assert perplexity.dropped > 0
    assert [limit.end for limit in perplexity.limits] == ["min", "max"]
    assert all(limit.bound is not None for limit in perplexity.limits)


def test_groups_add_up_to_the_whole(made: Any) -> None:
    rows = made.verdicts()
    for by in ("language", "domain"):
        groups = histograms_by(made.run, "all", by)
        assert list(groups) == sorted({row[by] for row in rows})
        for place, whole in enumerate(histograms(made.run)):
            counts: Counter[Any] = Counter()
            for found in groups.values():
                for one in found[place].bins:
                    counts[one.start, one.name, "rows"] += one.rows
                    counts[one.start, one.name, "dropped"] += one.dropped
            assert +counts == +Counter(
                {(one.start, one.name, kind): getattr(one, kind) for one in whole.bins for kind in ("rows", "dropped")}
            )
    (perplexity,) = histograms_by(made.run, "perplexity", "language")["und"]
    # Each document's own limit is known now: so what is beyond it is what it dropped.
    beyond = [perplexity.beyond(limit) or (0, 0) for limit in perplexity.limits]
    assert len(beyond) == 2
    assert sum(fewest for fewest, _ in beyond) <= perplexity.dropped <= sum(most for _, most in beyond)
    books = histograms_by(made.run, "gopher_quality_v2.words", "domain")["books"]
    assert [one.rows for one in books] == [0]


def test_splits_change_nothing(made: Any, cut_fine: Any) -> None:
    assert [one.bins for one in histograms(made.run)] == [one.bins for one in histograms(cut_fine.run)]


def test_one_score_can_be_asked_for(made: Any) -> None:
    wanted = ("words", "gopher_quality_v2.words")
    assert [[one.column for one in histograms(made.run, name)] for name in wanted] == [["gopher_quality_v2.words"]] * 2
    assert {one.link for one in histograms(made.run, "perplexity_v1")} == {"perplexity_v1"}
    with pytest.raises(UserError, match="no score 'wrods'") as caught:
        histograms(made.run, "wrods")
    assert "'words'" in str(caught.value)


def test_as_plain_values() -> None:
    limit = Limit(CHECK, Ratio("n"), "max", Bound(default=2_500))
    found = Histogram("s_v1", Ratio("n", "a share"), "s_v1.n", (limit,), (Bin(0, None, 3, 0), Bin(5_000, None, 1, 1)))
    assert found.to_json() == {
        "stage": "s_v1", "score": "n", "scale": "ratio", "meaning": "a share", "documents": 4, "dropped": 1,
        "limits": [{"reason": "reason", "end": "max", "limit": 0.25, "beyond": [1, 1]}],
        "quantiles": {"1": 0.0, "5": 0.0, "25": 0.0, "50": 0.0, "75": 0.0, "95": 0.5, "99": 0.5},
        "bins": [
            {"from": 0.0, "to": 0.01, "documents": 3, "dropped": 0},
            {"from": 0.5, "to": 0.51, "documents": 1, "dropped": 1},
        ],
    }  # fmt: skip
    names = Histogram("s_v1", Category("n"), "s_v1.n", (), (Bin(None, "en", 3, 1), Bin(None, None, 2, 0)))
    assert names.to_json()["bins"] == [
        {"name": "en", "documents": 3, "dropped": 1},
        {"name": None, "documents": 2, "dropped": 0},
    ]
    assert names.quantile(50) is None
    assert score_tables.histogram_table(names)
