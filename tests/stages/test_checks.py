from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.checks import (
    ANY,
    KEPT,
    Check,
    Rule,
    decide,
    limit_of,
    parameter_of,
    percentiles_of,
    rule_of,
    value_and_detail,
)
from stages.limits import Bound, Grouped, Percentile
from stages.scores import Category, Count, Log10, Ratio, Score

SCORES: dict[str, Score] = {
    "count": Count("count"),
    "ratio": Ratio("ratio"),
    "log": Log10("log"),
    "kind": Category("kind"),
}
VALUES = {
    "count": st.integers(0, 6),
    "ratio": st.sampled_from([0.0, 0.25, 0.3333, 0.33335, 0.5, 1.0]),
    "log": st.sampled_from([-1.0, 0.0, 0.5, 0.50004, 0.50006, 2.0]),
    "kind": st.sampled_from(["a", "b", "c", ""]),
}
LANGUAGES = st.sampled_from(["en", "de", "fr"])
DOMAINS = st.sampled_from(["web", "code"])
STEPS = {"count": (0, 7), "ratio": (-1, 10_001), "log": (-10_001, 20_001)}


@st.composite
def bounds(draw: st.DrawFn, score: str) -> Bound | None:
    step = st.integers(*STEPS[score]) | st.sampled_from([0, 2_500, 3_333, 5_000, 5_001])
    by = draw(st.sampled_from([None, "language", "domain"]))
    if by is None:
        default = draw(st.none() | step)
        return None if default is None else Bound(default=default)
    names = LANGUAGES if by == "language" else DOMAINS
    return Bound(by, draw(st.dictionaries(names, step, min_size=1)), draw(st.none() | step))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    name = draw(st.sampled_from(list(SCORES)))
    code, null = draw(st.integers(0, 5)), draw(st.booleans())
    if name == "kind":
        some = st.lists(st.sampled_from("abc"), unique=True).map(tuple)
        allowed, forbidden = draw(some) or None, draw(some | st.just((ANY,)))
        return Rule(Check("r", name), code, SCORES[name], allowed=allowed, forbidden=forbidden, drops_null=null)
    least, greatest = draw(bounds(name)), draw(bounds(name))
    return Rule(Check("r", name), code, SCORES[name], least, greatest, drops_null=null)


ROW = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
ROWS = st.lists(st.tuples(ROW, LANGUAGES, DOMAINS), max_size=12)


def drops(rule: Rule, value: Any, groups: Mapping[str, str]) -> bool:
    """Return whether a rule drops a row, one comparison after the other."""
    if value is None:
        return rule.drops_null
    if isinstance(rule.score, Category):
        is_forbidden = rule.forbidden == (ANY,) or value in rule.forbidden
        return is_forbidden or (rule.allowed is not None and value not in rule.allowed)
    scale = 1 if isinstance(rule.score, Count) else 10_000
    step = round(value * scale)
    for bound, sign in ((rule.least, 1), (rule.greatest, -1)):
        if bound is not None:
            limit = bound.steps.get(groups[bound.by], bound.default) if bound.by else bound.default
            if limit is not None and sign * step < sign * limit:
                return True
    return False


@settings(deadline=None)
@given(st.lists(rules(), max_size=6), ROWS, st.integers(0, 2))
def test_the_first_rule_that_drops_a_row_decides_as_in_a_plain_loop(
    listed: list[Rule], rows: list[tuple[dict[str, Any], str, str]], before: int
) -> None:
    columns = {
        name: score.column(["a" if name == "kind" else 1] * before + [values[name] for values, _, _ in rows]).slice(
            before
        )
        for name, score in SCORES.items()
    }
    groups = {
        "language": pa.array([language for _, language, _ in rows], pa.string()),
        "domain": pa.array([domain for *_, domain in rows], pa.string()),
    }
    found = decide(listed, columns, groups, len(rows))
    assert found.dtype == np.int32
    expected = []
    for values, language, domain in rows:
        own = {"language": language, "domain": domain}
        hits = [position for position, rule in enumerate(listed) if drops(rule, values[rule.check.score], own)]
        expected.append(hits[0] if hits else KEPT)
    assert found.tolist() == expected
    for rule in listed:
        hits_alone = [
            drops(rule, values[rule.check.score], {"language": language, "domain": domain})
            for values, language, domain in rows
        ]
        assert rule.hits(columns[rule.check.score], groups).tolist() == hits_alone
        assert rule.groups() == {b.by for b in (rule.least, rule.greatest) if b is not None and b.by}


def test_limits_themselves_stay_and_the_next_step_does_not() -> None:
    for score, below, at, above in (
        (SCORES["count"], 4, 5, 6),
        (SCORES["ratio"], 0.4999, 0.5, 0.5001),
        (SCORES["log"], 0.4999, 0.5, 0.5001),
    ):
        column = score.column([below, at, above])
        step = int(score.steps(column)[1])
        rule = Rule(Check("r", score.name), 0, score, Bound(default=step), Bound(default=step))
        assert rule.hits(column, {}).tolist() == [True, False, True]


def parameters(**values: Any) -> Any:
    return SimpleNamespace(**values)


def test_a_check_reads_parameters_by_name_and_items_by_place() -> None:
    stage = parameters(least=5.0, pair=(0.1, Percentile(percentile=9)), wanted=("a",), bad=(), missing="drop")
    check = Check("r", "ratio", min="pair.0", max="pair.1", allowed="wanted", forbidden="bad", null="missing")
    assert check.parameters() == ["pair.0", "pair.1", "wanted", "bad", "missing"]
    assert parameter_of(stage, "pair.0") == 0.1
    assert limit_of(stage, "least") == 5.0
    assert (limit_of(stage, 3), limit_of(stage, None)) == (3, None)
    rule = rule_of(stage, check, 7, SCORES["ratio"])
    # A percentile is known later.
    assert rule == Rule(check, 7, SCORES["ratio"], Bound(default=1_000), None, ("a",), (), drops_null=True)
    assert percentiles_of(stage, check) == {"max": Percentile(percentile=9)}
    assert percentiles_of(stage, Check("r", "ratio", min="least")) == {}


def test_a_check_may_hold_its_limits_itself() -> None:
    check = Check("r", "count", min=1, max=2.0, null="drop")
    assert check.parameters() == []
    assert rule_of(parameters(), check, 0, SCORES["count"]) == Rule(
        check, 0, SCORES["count"], Bound(default=1), Bound(default=2), drops_null=True
    )
    forbidding = Check("r", "kind", forbidden=ANY)
    assert forbidding.parameters() == []
    assert rule_of(parameters(), forbidding, 0, SCORES["kind"]).forbidden == (ANY,)


@pytest.mark.parametrize(
    ("allowed", "forbidden", "stays"),
    [
        ((), (), ["a", "b", "", None]),
        (("a", ""), (), ["a", "", None]),
        ((), ("a",), ["b", "", None]),
        (("a", "b"), ("a",), ["b", None]),
    ],
)
def test_no_allowed_values_are_all_and_no_forbidden_ones_are_none(
    allowed: tuple[str, ...], forbidden: tuple[str, ...], stays: list[str | None]
) -> None:
    values = ["a", "b", "", None]
    check = Check("r", "kind", allowed="wanted", forbidden="bad")
    rule = rule_of(parameters(wanted=allowed, bad=forbidden), check, 0, SCORES["kind"])
    hits = rule.hits(SCORES["kind"].column(values), {})
    assert [value for value, hit in zip(values, hits, strict=True) if not hit] == stays


@pytest.mark.parametrize(("null", "hits"), [("keep", [False, False]), ("drop", [True, False])])
@pytest.mark.parametrize("name", ["count", "ratio", "log", "kind"])
def test_null_stays_unless_the_check_says_drop(name: str, null: str, hits: list[bool]) -> None:
    column = SCORES[name].column([None, "a" if name == "kind" else 1])
    for check in (Check("r", name, null=null), Check("r", name, null="said")):
        rule = rule_of(parameters(said=null), check, 0, SCORES[name])
        assert rule.hits(column, {}).tolist() == hits


def test_a_group_without_a_limit_stays() -> None:
    languages = pa.array(["en", "de", None])
    for check, counts in (
        (Check("r", "count", min="limit"), [4, -9, 4]),
        (Check("r", "count", max="limit"), [6, 9, 6]),
    ):
        rule = rule_of(parameters(limit=Grouped(language={"en": 5})), check, 0, SCORES["count"])
        assert rule.hits(pa.array(counts), {"language": languages}).tolist() == [True, False, False]


def test_what_decided_is_a_number_or_a_name() -> None:
    number, name = (Rule(Check("r", key), 0, SCORES[key]) for key in ("ratio", "kind"))
    assert value_and_detail(number, pa.array([0.25, None]), 0) == (0.25, None)
    assert value_and_detail(number, pa.array([0.25, None]), 1) == (None, None)
    assert value_and_detail(name, pa.array(["a"]), 0) == (None, "a")
