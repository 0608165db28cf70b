from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.pace import Pace, shown_end, shown_seconds


def pace(end: int, steps: Iterable[tuple[int, float]]) -> Pace:
    """Return a pace that has recorded steps, each as (tokens, seconds)."""
    times = list(steps)
    clock = iter([seconds for _, seconds in times])
    made = Pace(end, clock.__next__)
    for tokens, _ in times:
        made.note(tokens)
    return made


@given(
    start=st.integers(0, 10**12),
    per_step=st.integers(1, 10**7),
    seconds=st.floats(1e-3, 1e4),
    steps=st.integers(4, 300),
    more=st.integers(0, 10**4),
)
def test_a_steady_pace_predicts_its_end(start: int, per_step: int, seconds: float, steps: int, more: int) -> None:
    # The first step of all takes much longer, and says nothing about the rest.
    noted = [(start + per_step * (n + 1), 1e5 + seconds * n) for n in range(steps)]
    left = pace(noted[-1][0] + more * per_step, noted).seconds_left
    assert left == pytest.approx(more * seconds, rel=1e-3)


def test_too_few_steps_are_no_pace() -> None:
    assert pace(10, []).seconds_left is None
    assert pace(10, [(1, 5.0)]).seconds_left is None
    assert pace(10, [(1, 5.0), (2, 6.0), (3, 7.0)]).seconds_left is None
    assert pace(10, [(1, 5.0), (2, 6.0), (3, 7.0), (4, 8.0)]).seconds_left == 6.0


def test_steps_that_take_long_are_enough_sooner() -> None:
    assert pace(10, [(1, 0.0), (2, 60.0)]).seconds_left == 480.0


def test_a_clock_that_stands_still_says_nothing() -> None:
    assert pace(10, [(n, 0.0) for n in range(1, 8)]).seconds_left is None


def test_a_change_of_pace_soon_shows() -> None:
    quick = [(n, float(n)) for n in range(1_000)]
    slow = [(1_000 + n, 1_000.0 + 10 * n) for n in range(250)]
    assert pace(1_349, [*quick, *slow]).seconds_left == pytest.approx(1_000.0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (92, "1 min 32 s"),
        (3_599.7, "1 h 0 min"),
        (11_130, "3 h 5 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations_in_their_two_largest_units(seconds: float, shown: str) -> None:
    assert shown_seconds(seconds) == shown


def test_an_end_has_its_seconds_where_it_is_near_and_its_date_on_another_day() -> None:
    now = datetime(2026, 11, 30, 23, 10)
    assert shown_end(9 * 60 + 5, now) == "23:19:05"
    assert shown_end(60 * 49, now) == "23:59"
    assert shown_end(60 * 51, now) == "2026-12-01 00:01"
    assert shown_end(90, datetime(2026, 11, 30, 23, 59)) == "2026-12-01 00:00:30"
