from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.scores import STEPS, Category, Count, Log10, Ratio, Score

COUNT, RATIO, LOG10, CATEGORY = Count("c"), Ratio("r"), Log10("l"), Category("k")
NUMBERS = (COUNT, RATIO, LOG10)
MOST = 1 << 50

SOME = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 0.5, 1.5, 2.5, 0.00005, 0.00015, 0.33335, 1 / 3])
MISSING = st.sampled_from([None, math.nan])
LISTS = st.lists(SOME | MISSING, max_size=20)

FORMS: dict[str, Callable[[Sequence[float | None]], Any]] = {
    "a list": list,
    "numpy": lambda values: np.array(values, np.float64),
    "Arrow": lambda values: pa.array(values, pa.float64()),
    "Arrow with nulls": lambda values: pa.array(values, pa.float64(), from_pandas=True),
    "a slice": lambda values: pa.array([7.0, *values], pa.float64()).slice(1),
}
each_form = pytest.mark.parametrize("form", FORMS)


def is_missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def half_even(number: float) -> int:
    """Round a float64 as it is, by exact decimal arithmetic."""
    return int(Decimal(number).quantize(Decimal(1), ROUND_HALF_EVEN))


@each_form
@given(values=LISTS)
def test_counts_are_rounded_to_whole_numbers(form: str, values: list[float | None]) -> None:
    column = COUNT.column(FORMS[form](values))
    assert column.type == COUNT.type
    assert column.to_pylist() == [None if is_missing(one) else half_even(one or 0) for one in values]


@each_form
@given(values=LISTS)
def test_ratios_are_rounded_to_a_ten_thousandth(form: str, values: list[float | None]) -> None:
    column = RATIO.column(FORMS[form](values))
    assert column.type == RATIO.type
    assert column.to_pylist() == [None if is_missing(one) else half_even((one or 0) * STEPS) / STEPS for one in values]
    for one, stored in zip(values, column.to_pylist(), strict=True):
        assert stored is None or abs(Fraction(stored) - Fraction(one or 0)) <= Fraction(1, 2 * STEPS) + Fraction(
            1, 10**9
        )


@each_form
@given(values=st.lists(st.floats(-300, 300) | MISSING, max_size=20))
def test_logarithms_are_rounded_and_stand_as_powers_of_seven_digits(form: str, values: list[float | None]) -> None:
    column = LOG10.column(FORMS[form](values))
    assert column.type == LOG10.type
    for one, stored in zip(values, column.to_pylist(), strict=True):
        if is_missing(one):
            assert stored is None
        else:
            assert stored == float(f"{10.0 ** (half_even((one or 0) * STEPS) / STEPS):.7g}")
            # Half a step is 0.0115 percent, and seven digits are 0.000005 percent.
            assert stored == pytest.approx(10.0 ** (one or 0), rel=1.2e-4)


@pytest.mark.parametrize(
    "integers", [np.array([3, 0, -2]), np.array([3, 0], np.uint64), np.array([True, False]), np.array([3, 0], np.int8)]
)
def test_whole_numbers_of_any_kind_are_counts(integers: Any) -> None:
    expected = [int(one) for one in integers]
    for form in (integers, pa.array(integers), integers.tolist()):
        assert COUNT.column(form).to_pylist() == expected
    assert COUNT.column(pa.array([4, None], pa.int32())).to_pylist() == [4, None]


@pytest.mark.parametrize("score", NUMBERS)
@pytest.mark.parametrize("nothing", [[], [None], [math.nan, None], np.array([math.nan]), pa.nulls(2), pa.array([None])])
def test_what_was_not_measured_is_null(score: Score, nothing: Any) -> None:
    column = score.column(nothing)
    assert (len(column), column.null_count, column.type) == (len(nothing), len(nothing), score.type)
    assert score.steps(column).tolist() == [0] * len(nothing)


@pytest.mark.parametrize("score", [COUNT, RATIO])
@given(st.lists(st.integers(1 - MOST, MOST - 1), max_size=10))
@example([MOST - 1, 1 - MOST, 0, 1, MOST // 2 + 1])
def test_steps_and_values_are_each_others_inverse(score: Score, steps: list[int]) -> None:
    column = pa.array([score.value_of(step) for step in steps], pa.float64()).cast(score.type)
    assert score.steps(column).tolist() == steps
    assert score.steps(score.column(column)).tolist() == steps
    assert [score.step_of(score.value_of(step)) for step in steps] == steps


@given(st.lists(st.integers(-307 * STEPS, 308 * STEPS), max_size=10))
@example([-307 * STEPS, 308 * STEPS, 0, 1, -1])
def test_steps_and_powers_are_each_others_inverse(steps: list[int]) -> None:
    column = LOG10.column([step / STEPS for step in steps])
    assert column.to_pylist() == [LOG10.value_of(step) for step in steps]
    assert LOG10.steps(column).tolist() == steps
    assert [LOG10.step_of(value) for value in column.to_pylist()] == steps


@pytest.mark.parametrize("score", NUMBERS)
@given(st.lists(st.floats(-200, 200), min_size=2, max_size=2))
def test_steps_are_in_the_order_of_values(score: Score, values: list[float]) -> None:
    low, high = score.steps(score.column(sorted(values))).tolist()
    assert low <= high
    assert score.value_of(low) <= score.value_of(high)


@given(SOME)
def test_a_limit_is_rounded_as_a_score_is(number: float) -> None:
    for score in (COUNT, RATIO):
        assert score.step_of(number) == score.steps(score.column([number]))[0]


@given(st.floats(1e-300, 1e300))
def test_a_limit_of_powers_is_rounded_as_a_logarithm_is(number: float) -> None:
    assert LOG10.step_of(number) == LOG10.steps(LOG10.column([float(np.log10(number))]))[0]


BEYOND = [
    (COUNT, float(MOST)),
    (COUNT, -float(MOST)),
    (COUNT, math.inf),
    (COUNT, np.array([MOST])),
    (COUNT, np.array([-(1 << 63)])),
    (COUNT, np.array([1 << 63], np.uint64)),
    (COUNT, pa.array([MOST])),
    (RATIO, MOST / STEPS),
    (RATIO, -math.inf),
    (RATIO, 1e300),
    (LOG10, 308.3),
    (LOG10, -307.7),
    (LOG10, math.inf),
    (LOG10, -math.inf),
]


@pytest.mark.parametrize(("score", "value"), BEYOND)
def test_what_a_scale_cannot_hold_is_refused_and_not_cut(score: Score, value: Any) -> None:
    values = value if isinstance(value, np.ndarray | pa.Array) else [1.0, value]
    with pytest.raises(ValueError, match=rf"the score {score.name} |not in range"):
        score.column(values)


@pytest.mark.parametrize("score", NUMBERS)
def test_a_limit_beyond_every_score_is_no_limit(score: Score) -> None:
    most = score.steps(score.column([307.9 if score is LOG10 else (MOST - 1) / (1 if score is COUNT else STEPS)]))[0]
    assert score.step_of(math.inf) > most
    if score is not LOG10:
        assert score.step_of(-math.inf) < -most


def test_categories_are_names() -> None:
    for values in (["a", None], pa.array(["a", None]), pa.array(["a", None]).dictionary_encode()):
        column = CATEGORY.column(values)
        assert column.type == pa.string()
        assert column.to_pylist() == ["a", None]
    assert not CATEGORY.is_number
    assert all(score.is_number for score in NUMBERS)


def test_scales_have_names_of_their_own() -> None:
    assert [score.scale for score in (*NUMBERS, CATEGORY)] == ["count", "ratio", "log10", "category"]
