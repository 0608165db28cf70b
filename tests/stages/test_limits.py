from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.limits import (
    AtLeastZero,
    Bound,
    Grouped,
    Limit,
    Percentile,
    Positive,
    Share,
    early_bound,
    numbers_of,
    percentile_step,
)
from stages.scores import Count, Log10, Ratio

PERCENTILES = st.sampled_from([0.0, 0.1, 1e-5, 2.5, 5.0, 7.0, 12.5, 25.0, 33.3, 50.0, 75.0, 95.0, 99.9, 100.0])
STEPS = st.lists(st.integers(-500, 60_000) | st.integers(20_000, 20_003), min_size=1, max_size=200)


def at(steps: list[int], percentile: float) -> int:
    found = Counter(steps)
    distinct = sorted(found)
    return percentile_step(distinct, [found[step] for step in distinct], percentile)


@given(STEPS, PERCENTILES | st.floats(0, 100))
def test_a_percentile_follows_the_definition(steps: list[int], percentile: float) -> None:
    share = Fraction(str(percentile)) / 100
    enough = [one for one in sorted(steps) if sum(other <= one for other in steps) >= share * len(steps)]
    assert at(steps, percentile) == enough[0]


@given(STEPS, st.sampled_from([0.0, 12.5, 25.0, 50.0, 75.0, 100.0]))
def test_a_percentile_agrees_with_numpy_where_numpy_is_exact(steps: list[int], percentile: float) -> None:
    assert at(steps, percentile) == np.percentile(steps, percentile, method="inverted_cdf")


def test_a_percentile_is_exact_where_floats_are_not() -> None:
    # 0.07 * 100 is 7.000000000000001: a float would take the eighth of a hundred.
    assert [percentile_step(range(1, 101), [1] * 100, p) for p in (7, 7.0, 29.0, 57.0, 58.0)] == [7, 7, 29, 57, 58]
    many = 10**15
    assert percentile_step([1, 2], [many - 1, 1], 100) == 2
    assert percentile_step([1, 2], [many - 1, many + 1], 50) == 2
    assert percentile_step([1, 2], [many, many], 50) == 1
    # A step that no document has is not the least one.
    assert percentile_step([1, 2, 3], [0, 5, 1], 0) == 2


@settings(deadline=None)
@given(STEPS, PERCENTILES, PERCENTILES, st.integers(-300, 300))
def test_percentiles_rise_and_move_with_the_documents(steps: list[int], one: float, other: float, by: int) -> None:
    assert at(steps, min(one, other)) <= at(steps, max(one, other))
    assert at([step + by for step in steps], one) == at(steps, one) + by
    assert at(steps * 3, one) == at(steps, one)


LIMIT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Limit)


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (50, 50.0),
        (0.25, 0.25),
        (math.inf, math.inf),
        ({"language": {"de": 40, "th": 0}, "default": 50}, Grouped(language={"de": 40.0, "th": 0.0}, default=50.0)),
        ({"domain": {"web": 1}}, Grouped(domain={"web": 1.0})),
        ({"percentile": 95}, Percentile(percentile=95.0)),
        ({"percentile": 5.5, "by": "domain"}, Percentile(percentile=5.5, by="domain")),
        ({"percentile": 99, "of": ["a/*.txt"]}, Percentile(percentile=99, of=("a/*.txt",))),
        ({"percentile": 0, "by": "language", "of": ["a"]}, Percentile(percentile=0, by="language", of=("a",))),
    ],
)
def test_a_limit_is_read_as_it_is_written_in_a_recipe(said: Any, limit: Limit) -> None:
    assert LIMIT.validate_python(said) == limit
    assert LIMIT.validate_python(limit) == limit


@pytest.mark.parametrize(
    ("said", "place", "message"),
    [
        ("many", "number", "valid number"),
        ([50], "number", "valid number"),
        (math.nan, "number", "nan is not a number"),
        ({}, "by group", "a table 'language' or a table 'domain'"),
        ({"default": 5}, "by group", "a table 'language' or a table 'domain'"),
        ({"language": {}}, "by group", "a table 'language' or a table 'domain'"),
        ({"language": {"en": 1}, "domain": {"web": 2}}, "by group", "a table 'language' or a table 'domain'"),
        ({"language": {"en": "few"}}, "by group.language.en", "valid number"),
        ({"language": {"en": math.nan}}, "by group", "nan is not a number"),
        ({"language": {"en": 1}, "default": math.nan}, "by group", "nan is not a number"),
        ({"languages": {"en": 1}}, "by group.languages", "not permitted"),
        ({"percentile": 101}, "percentile.percentile", "less than or equal to 100"),
        ({"percentile": -1}, "percentile.percentile", "greater than or equal to 0"),
        ({"percentile": math.nan}, "percentile.percentile", "less than or equal to 100"),
        ({"percentile": 5, "by": "url"}, "percentile.by", "'language' or 'domain'"),
        ({"percentile": 5, "default": 3}, "percentile.default", "not permitted"),
        ({"percentile": 5, "by": "domain", "of": ["a"]}, "percentile", "reference text has no domains"),
        ({"percentile": 5, "of": "a"}, "percentile.of", "valid tuple"),
    ],
)
def test_a_wrong_limit_has_one_error_of_the_kind_that_was_meant(said: Any, place: str, message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message) as raised:
        LIMIT.validate_python(said)
    (error,) = raised.value.errors()
    assert ".".join(map(str, error["loc"])) == place


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (Share, (0, 0.5, 1), (-0.1, 1.1, math.inf)),
        (AtLeastZero, (0, 5, 1e9, math.inf), (-1, -math.inf)),
        (Positive, (1e-9, 5), (0, -1)),
    ],
)
def test_the_numbers_of_a_limit_are_within_its_range_in_every_form(
    kind: Any, accepted: tuple[float, ...], refused: tuple[float, ...]
) -> None:
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    for number in accepted:
        for said in (number, {"language": {"en": number}}, {"domain": {"web": number}, "default": number}):
            assert numbers_of(adapter.validate_python(said))[-1] == number
    good = accepted[1]
    for number in (*refused, math.nan):
        for said in (number, {"language": {"en": good, "de": number}}, {"domain": {"web": good}, "default": number}):
            with pytest.raises(pydantic.ValidationError, match="is not "):
                adapter.validate_python(said)
    # A percentile is of scores, so it has no number to be out of range.
    assert adapter.validate_python({"percentile": 50}) == Percentile(percentile=50)
    optional: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind | None)
    assert optional.validate_python(None) is None


def test_numbers_of_groups() -> None:
    limit = Grouped(language={"en": 1, "de": 2}, default=3)
    assert (limit.by, dict(limit.numbers)) == ("language", {"en": 1, "de": 2})
    assert [limit.number_of(group) for group in ("en", "de", "fr", None)] == [1, 2, 3, 3]
    assert Grouped(domain={"web": 1}).number_of("code") is None
    assert numbers_of(limit) == [1, 2, 3]
    assert numbers_of(Grouped(domain={"web": 1})) == [1]
    assert numbers_of(None) == numbers_of(Percentile(percentile=5)) == []


def test_early_limits_are_known_in_steps_and_late_ones_are_not() -> None:
    assert early_bound(Ratio("r"), 0.25) == Bound(default=2_500)
    assert early_bound(Count("c"), Grouped(language={"en": 5}, default=7)) == Bound("language", {"en": 5}, 7)
    assert early_bound(Log10("l"), Grouped(domain={"web": 100})) == Bound("domain", {"web": 20_000})
    assert early_bound(Count("c"), Percentile(percentile=5)) is None
    assert early_bound(Count("c"), None) is None


GROUPS = st.none() | st.sampled_from(["en", "de", "fr", ""])


@given(
    st.lists(GROUPS, max_size=20),
    st.dictionaries(st.sampled_from(["en", "de", "fr", "", "xx"]), st.integers(-(1 << 53), 1 << 53), max_size=4),
    st.none() | st.integers(-5, 5),
    st.integers(0, 3),
)
def test_the_step_of_each_row_agrees_with_a_plain_loop(
    rows: list[str | None], steps: dict[str, int], default: int | None, cut: int
) -> None:
    bound = Bound("language", steps, default)
    group = pa.array([*["en"] * cut, *rows], pa.string()).slice(cut)
    found, has = bound.of_rows(group, len(rows))
    assert found.dtype == np.int64
    for row, name in enumerate(rows):
        expected = default if name is None else steps.get(name, default)
        assert (int(found[row]) if has[row] else None) == expected
        if name is not None:
            assert bound.of_group(name) == expected
    assert bound.groups() == set(steps)


@given(st.integers(0, 5), st.none() | st.integers(-(1 << 53), 1 << 53))
def test_one_step_for_all_needs_no_group(size: int, default: int | None) -> None:
    found, has = Bound(default=default).of_rows(None, size)
    assert found.tolist() == [default or 0] * size
    assert has.tolist() == [default is not None] * size
