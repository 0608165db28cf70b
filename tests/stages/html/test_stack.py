"""The rows of open and cut-off elements against lists of Python, and searches in them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.html.names import FOREIGN, IMPLIED, LISTED, MARKER, SPECIAL

LIMIT = 12
CUT_ROOM = 48


class Rows:
    """The array of the scan with its functions; an element is known by the number in its column START."""

    def __init__(self, modules: SimpleNamespace) -> None:
        self.lexer, self.stack = modules.lexer, modules.stack
        first = self.lexer.FIRST
        self.rows = np.zeros((first + LIMIT + CUT_ROOM, 7), np.int64)
        state = self.rows[self.lexer.STATE]
        state[self.lexer.SIZE], state[self.lexer.LIMIT] = first, LIMIT
        state[self.lexer.CUT] = state[self.lexer.BASE] = first + LIMIT

    def push(self, number: int, bits: int) -> None:
        self.rows[self.lexer.TAG, self.lexer.START] = number
        self.stack.push(self.rows, self.lexer.TAG, bits)

    def at(self, index: int) -> int:
        """Return the row of the open element at ``index`` from the bottom."""
        return int(self.lexer.FIRST + index)

    @property
    def open(self) -> list[int]:
        return self.numbers(self.lexer.FIRST, self.state(self.lexer.SIZE))

    @property
    def cut(self) -> list[int]:
        """The elements that would be reopened now."""
        return self.numbers(self.state(self.lexer.BASE), self.state(self.lexer.CUT))

    @property
    def deepest(self) -> int:
        return self.state(self.lexer.DEEPEST)

    def state(self, column: int) -> int:
        return int(self.rows[self.lexer.STATE, column])

    def numbers(self, start: int, end: int) -> list[int]:
        return [int(number) for number in self.rows[start:end, self.lexer.START]]


KINDS = st.sampled_from([0, SPECIAL, LISTED, LISTED, IMPLIED])
ACTION = st.tuples(st.sampled_from(["push", "push", "close", "reopen"]), KINDS, st.integers(0, 8))


@settings(max_examples=200)
@given(st.lists(ACTION, max_size=14))
def test_what_is_closed_is_cut_off_and_what_is_cut_off_is_reopened(
    interpreted: SimpleNamespace, actions: list[tuple[str, int, int]]
) -> None:
    rows = Rows(interpreted)
    opened: list[tuple[int, int]] = []
    cut: list[tuple[int, int]] = []
    deepest = 0
    for number, (action, bits, where) in enumerate(actions, 1):
        if action == "push" and len(opened) < LIMIT:
            opened.append((number, bits))
            rows.push(number, bits)
        elif action == "close" and opened:
            at = where % len(opened)
            cut += [one for one in opened[at:] if one[1] & LISTED]
            del opened[at:]
            rows.stack.close(rows.rows, rows.at(at))
        elif action == "reopen" and len(opened) + len(cut) <= LIMIT:
            opened += cut
            cut = []
            rows.stack.reopen(rows.rows)
        deepest = max(deepest, len(opened))
        assert rows.open == [one for one, _ in opened]
        assert rows.cut == [one for one, _ in cut]
        assert rows.deepest == deepest


def test_elements_are_not_reopened_across_a_marker(interpreted: SimpleNamespace) -> None:
    rows = Rows(interpreted)
    rows.push(1, SPECIAL)
    rows.push(2, LISTED)
    rows.stack.close(rows.rows, rows.at(0))
    assert rows.cut == [2]
    rows.push(3, MARKER)
    assert rows.cut == []
    rows.push(4, LISTED)
    rows.stack.close(rows.rows, rows.at(1))
    assert rows.cut == [4]
    rows.stack.close(rows.rows, rows.at(0), True)
    assert (rows.open, rows.cut) == ([], [2])


def test_a_marker_closed_by_another_hides_nothing_any_more(interpreted: SimpleNamespace) -> None:
    """A parser keeps such a marker in its list and reopens fewer; here more are taken to be open, never fewer."""
    rows = Rows(interpreted)
    rows.push(1, LISTED)
    rows.stack.close(rows.rows, rows.at(0))
    rows.push(2, MARKER)
    rows.push(3, LISTED)
    assert rows.cut == []
    rows.stack.close(rows.rows, rows.at(0))
    assert (rows.open, rows.cut) == ([], [1, 3])


def test_more_than_there_is_room_for_counts_as_too_deep(interpreted: SimpleNamespace) -> None:
    rows = Rows(interpreted)
    for number in range(LIMIT + 3):
        rows.push(number, 0)
    assert rows.open == list(range(LIMIT))
    assert rows.deepest == LIMIT + 1
    rows = Rows(interpreted)
    for number in range(CUT_ROOM + 1):
        rows.push(number, LISTED)
        rows.stack.close(rows.rows, rows.at(0))
    assert rows.deepest >= LIMIT


@given(st.integers(0, 5), st.integers(0, 5))
def test_removing_a_row_moves_up_those_after_it(interpreted: SimpleNamespace, at: int, count: int) -> None:
    rows = Rows(interpreted)
    for number in range(6):
        rows.push(number, 0)
    end = max(at + 1, count + 1)
    rows.stack.remove_row(rows.rows, rows.at(at), rows.at(end))
    assert rows.open == [*range(at), *range(at + 1, end), end - 1, *range(end, 6)][:6]


@pytest.mark.parametrize(
    ("stack", "bits", "stop", "index"),
    [
        ([SPECIAL, 0, LISTED], SPECIAL, 0, 0),
        ([SPECIAL, MARKER, LISTED], SPECIAL, MARKER, None),
        ([SPECIAL, SPECIAL, 0], SPECIAL, MARKER, 1),
        ([SPECIAL | MARKER], SPECIAL, MARKER, 0),
        ([SPECIAL | FOREIGN], SPECIAL, 0, None),
        ([0, 0], SPECIAL, 0, None),
        ([], SPECIAL, 0, None),
    ],
)
def test_find_stops_at_a_barrier_above(
    interpreted: SimpleNamespace, stack: list[int], bits: int, stop: int, index: int | None
) -> None:
    rows = Rows(interpreted)
    for number, kind in enumerate(stack):
        rows.push(number, kind)
    assert rows.stack.find(rows.rows, bits, stop) == (0 if index is None else rows.at(index))
    rows.stack.close_kind(rows.rows, bits, stop)
    assert rows.open == list(range(len(stack) if index is None else index))


def test_implied_end_tags_close_from_the_top_only(interpreted: SimpleNamespace) -> None:
    rows = Rows(interpreted)
    for number, kind in enumerate([IMPLIED, 0, IMPLIED, IMPLIED | SPECIAL, IMPLIED]):
        rows.push(number, kind)
    rows.stack.close_implied(rows.rows, SPECIAL)
    assert rows.open == [0, 1, 2, 3]
    rows.stack.close_implied(rows.rows, 0)
    assert rows.open == [0, 1]


@pytest.mark.parametrize(
    ("one", "other", "same_name", "same_tag"),
    [
        ("<b>", "<B>", True, True),
        ("<b>", "<i>", False, False),
        ("<b a=1>", "<b a=1>", True, True),
        ("<b a=1>", "<b a=2>", True, False),
        ("<b a=1>", "<b  a=1>", True, False),
        ("<custom-element-one>", "<custom-ELEMENT-one>", True, True),
        ("<custom-element-one>", "<custom-element-two>", False, False),
        ("<custom-element-one>", "<custom-element-on>", False, False),
    ],
)
def test_elements_are_the_same_by_name_and_by_attributes(
    interpreted: SimpleNamespace, one: str, other: str, same_name: bool, same_tag: bool
) -> None:
    rows, lexer = Rows(interpreted), interpreted.lexer
    page = np.frombuffer((one + other).encode(), np.uint8).astype(np.int64)
    for at in (0, len(one)):
        end = lexer.read_name(page, at + 1, rows.rows)
        rows.rows[lexer.TAG, lexer.END] = lexer.read_attributes(page, end, rows.rows, lexer.WORDS, 0)
        if at == 0:
            rows.stack.push(rows.rows, lexer.TAG, 0)
    assert rows.stack.same_name(page, rows.rows, rows.at(0)) is same_name
    assert rows.stack.same_tag(page, rows.rows, rows.at(0)) is same_tag
