"""What is repeated within a document, against the same rules in plain Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.edits import apply_edits, edit_table, removed_and_inserted, require_valid
from stages.text.repeated import LINE, PARAGRAPH, find_repeated
from tests.stages.text.plain import TEXTS
from tests.stages.text.repeats import chars, plain_repeated

LINES = st.sampled_from(
    [
        "one line",
        "One line",
        " one line \t",
        "two",
        "}",
        "---",
        "",
        " ",
        "\u3000",
        "中文 中文",
        "中文",
        "🙂🙂",
        "a\r",
        "\r",
    ]
)
DOCUMENTS = st.one_of(TEXTS, st.lists(LINES, max_size=14).map("\n".join))
MODES = st.sampled_from([(True, False), (False, True), (True, True)])


def left_of(
    texts: list[str | None], min_chars: int, mode: tuple[bool, bool]
) -> tuple[list[str | None], list[dict[int, int]]]:
    column = pa.array(texts, pa.string())
    rows, starts, ends, kinds = find_repeated(column, min_chars, lines=mode[0], paragraphs=mode[1])
    edits = edit_table(rows, starts, ends, ["x"] * len(rows))
    require_valid(column, edits)
    removed, _ = removed_and_inserted(column, edits)
    gone = [
        {kind: int(removed[(rows == row) & (kinds == kind)].sum()) for kind in (LINE, PARAGRAPH)}
        for row in range(len(texts))
    ]
    touching = (rows[1:] == rows[:-1]) & (starts[1:] == ends[:-1])
    assert not (touching & (kinds[1:] == kinds[:-1])).any()
    return apply_edits(column, edits).to_pylist(), gone


@settings(deadline=None, max_examples=300)
@given(st.lists(st.none() | DOCUMENTS, max_size=3), st.integers(1, 8), MODES)
def test_what_is_left_is_what_plain_rules_leave(texts: list[str | None], least: int, mode: tuple[bool, bool]) -> None:
    left, gone = left_of(texts, least, mode)
    for text, found, counts in zip(texts, left, gone, strict=True):
        assert (found or "", counts) == plain_repeated(text or "", least, *mode)
        assert (found is None) == (text is None)


@settings(deadline=None)
@given(DOCUMENTS, st.integers(1, 8), st.sampled_from([(True, False), (False, True)]))
def test_a_second_time_finds_nothing(text: str, least: int, mode: tuple[bool, bool]) -> None:
    (left,), _ = left_of([text], least, mode)
    assert left_of([left], least, mode)[0] == [left]


@settings(deadline=None)
@given(DOCUMENTS, st.integers(1, 8))
def test_each_line_that_was_there_is_there_once_and_short_ones_as_often_as_before(text: str, least: int) -> None:
    (left,), _ = left_of([text], least, (True, False))
    assert left is not None
    before, after = ([line.strip() for line in one.split("\n")] for one in (text, left))
    assert [line for line in after if chars(line) >= least] == list(
        dict.fromkeys(line for line in before if chars(line) >= least)
    )
    for line in {line for line in before if 0 < chars(line) < least}:
        assert after.count(line) == before.count(line)


@pytest.mark.parametrize(
    ("text", "mode", "left"),
    [
        ("a\nb\na", (True, False), "a\nb"),
        ("a\nb\na\n", (True, False), "a\nb\n"),
        ("a\r\nb\r\na", (True, False), "a\r\nb"),
        ("a\n\na\n\nb", (True, False), "a\n\nb"),
        ("a\n\n\nb\n\n\n\na\n\nc\n", (False, True), "a\n\n\nb\n\nc\n"),
        ("a\nb\n\na\nb", (False, True), "a\nb"),
        ("a\nb\n\nb\na", (False, True), "a\nb\n\nb\na"),
        ("a\nb\n\na\nb\nc\n\na\nb", (True, True), "a\nb\n\nc"),
        ("  a\n\ta \n", (True, False), "  a\n"),
        ("A\na", (True, False), "A\na"),
        ("a  b\na b", (True, False), "a  b\na b"),
        ("\n\na\n\n\n", (True, True), "\n\na\n\n\n"),
    ],
)
def test_line_feeds_and_empty_lines_go_with_what_they_belong_to(text: str, mode: tuple[bool, bool], left: str) -> None:
    assert left_of([text], 1, mode)[0] == [left]


def test_a_paragraph_of_one_line_is_not_that_line() -> None:
    assert left_of(["a\nb\n\na"], 1, (False, True))[0] == ["a\nb\n\na"]


def test_many_lines_that_differ_and_many_that_do_not() -> None:
    many = "".join(f"{number}\n" for number in range(30_000))
    assert left_of([many, many + many, "x\n" * 50_000], 1, (True, False))[0] == [many, many, "x\n"]
