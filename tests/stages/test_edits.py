"""Edit tables, against the same edits made one by one on Python strings."""

from __future__ import annotations

import re
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base import Measured, Stage, columns_of, stage
from stages.edits import (
    EDITS,
    apply_edits,
    composed,
    counted,
    edit_scores,
    edit_table,
    removed_and_inserted,
    require_valid,
)
from stages.marking import judged, mark
from tests.stages.editors import Replacer, documents

REASONS = ("mask", "line")
TEXTS = st.text(st.sampled_from("aé中𠀀🙂\u0301\n\x00ไक"), max_size=12)
Edit = tuple[int, int, int, str, str]


@st.composite
def edited_texts(draw: st.DrawFn) -> tuple[list[str | None], list[Edit]]:
    """Texts, and edits of them by characters: (row, start, end, reason, replacement)."""
    texts = draw(st.lists(st.none() | TEXTS, max_size=5))
    edits: list[Edit] = []
    for row, text in enumerate(texts):
        places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6))) if text is not None else []
        for start, end in zip(places[::2], places[1::2], strict=False):
            edits.append((row, start, end, draw(st.sampled_from(REASONS)), draw(st.just("") | TEXTS)))
    return texts, edits


def in_bytes(texts: list[str | None], edits: list[Edit]) -> pa.RecordBatch:
    def size(row: int, chars: int) -> int:
        return len((texts[row] or "")[:chars].encode())

    rows = [(row, size(row, start), size(row, end), *rest) for row, start, end, *rest in edits]
    return edit_table(*([one[i] for one in rows] for i in range(5)))


def plain_apply(texts: list[str | None], edits: list[Edit]) -> list[str | None]:
    found = list(texts)
    for row, start, end, _, replacement in reversed(edits):
        text = found[row] or ""
        found[row] = text[:start] + replacement + text[end:]
    return found


@given(edited_texts(), st.sampled_from([pa.string(), pa.large_string()]), st.integers(0, 3))
def test_applies_what_edits_one_by_one_give(drawn: Any, kind: pa.DataType, before: int) -> None:
    texts, edits = drawn
    column = pa.array(["è before"] * before + texts, kind).slice(before)
    table = in_bytes(texts, edits)
    require_valid(column, table, REASONS)
    found = apply_edits(column, table)
    found.validate(full=True)
    assert found.type == kind
    assert found.to_pylist() == plain_apply(texts, edits)


@given(edited_texts())
def test_characters_removed_and_inserted_are_the_change_in_length(drawn: Any) -> None:
    texts, edits = drawn
    column, table = pa.array(texts, pa.string()), in_bytes(texts, edits)
    scores = counted(column, table, REASONS)
    assert list(scores) == [score.name for score in edit_scores(REASONS)]
    for row, (before, after) in enumerate(zip(texts, plain_apply(texts, edits), strict=True)):
        change = sum(scores[f"inserted_chars.{name}"][row] - scores[f"removed_chars.{name}"][row] for name in REASONS)
        assert change == len(after or "") - len(before or "")
        for name in REASONS:
            mine = [edit for edit in edits if edit[0] == row and edit[3] == name]
            assert scores[f"removed_chars.{name}"][row] == sum(end - start for _, start, end, *_ in mine)
            assert scores[f"inserted_chars.{name}"][row] == sum(len(edit[4]) for edit in mine)
    removed, inserted = removed_and_inserted(column, table)
    assert removed.tolist() == [end - start for _, start, end, *_ in edits]
    assert inserted.tolist() == [len(edit[4]) for edit in edits]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ((2, 0, 1, "mask"), "row 2 is edited, and there is no such row"),
        ((-1, 0, 1, "mask"), "row -1 is edited, and there is no such row"),
        ((1, 0, 0, "mask"), "row 1 is edited, and has no text"),
        ((0, 0, 4, "mask"), "row 0 has an edit that is not inside"),
        ((0, -1, 1, "mask"), "row 0 has an edit that is not inside"),
        ((0, 2, 0, "mask"), "row 0 has an edit that is not inside"),
        ((0, 1, 3, "mask"), "row 0 has an edit that cuts a character"),
        ((0, 0, 1, "mask"), "row 0 has an edit that cuts a character"),
        ((0, 0, 2, "other"), "row 0 has an edit for a reason that is not declared"),
    ],
)
def test_edits_that_are_not_of_the_text_are_refused(edit: Any, said: str) -> None:
    row, start, end, reason = edit
    with pytest.raises(ValueError, match=said):
        require_valid(pa.array(["éa", None]), edit_table([row], [start], [end], [reason]), REASONS)


@pytest.mark.parametrize("places", [[(0, 0, 2), (0, 1, 3)], [(0, 2, 3), (0, 0, 1)], [(1, 0, 1), (0, 0, 1)]])
def test_edits_that_overlap_or_are_out_of_order_are_refused(places: list[tuple[int, int, int]]) -> None:
    rows, starts, ends = zip(*places, strict=True)
    with pytest.raises(ValueError, match="row 0 has edits that are not in order, or overlap"):
        require_valid(pa.array(["abc", "abc"]), edit_table(rows, starts, ends, ["mask"] * 2))


def test_edits_that_touch_and_two_insertions_in_one_place_keep_their_order() -> None:
    table = edit_table([0] * 4, [1, 1, 1, 2], [1, 1, 2, 3], ["mask"] * 4, ["1", "2", "3", "4"])
    require_valid(pa.array(["abcd"]), table)
    assert apply_edits(pa.array(["abcd"]), table).to_pylist() == ["a1234d"]


def test_a_table_with_other_columns_is_refused_and_one_without_edits_changes_nothing() -> None:
    text = pa.array(["a", None])
    with pytest.raises(ValueError, match="a table of edits has the columns"):
        require_valid(text, pa.record_batch({"row": np.zeros(1, np.int64)}))
    nothing = pa.RecordBatch.from_pylist([], EDITS)
    require_valid(text, nothing)
    assert apply_edits(text, nothing) is text


MASKED = st.lists(st.none() | st.sampled_from(["", "a 1 b 22", "333", "boom 1", "中4🙂5é", "none"]), max_size=8)


@given(MASKED, st.integers(0, 8))
def test_mark_replaces_the_text_in_any_batch_and_what_fails_fails_alone(texts: list[str | None], at: int) -> None:
    replacer = cast(Stage, Replacer(max_found=2.0, domains=("web",)))
    batch = documents(texts)
    whole = mark(replacer, batch)
    parts = [mark(replacer, part) for part in (batch.slice(0, at), batch.slice(at))]
    assert pa.Table.from_batches(parts).to_pylist() == whole.to_pylist()
    for before, row in zip(texts, whole.to_pylist(), strict=True):
        if "boom" in (before or ""):
            assert (row["text"], row["reason"], row["failed"]) == (before, "stage_error", True)
            assert row["replacer_v1.removed_chars.found"] is None
            continue
        found = re.findall(r"\d+", before or "")
        assert row["text"] == (None if before is None else re.sub(r"\d+", "#", before))
        assert row["replacer_v1.removed_chars.found"] == sum(map(len, found))
        assert row["replacer_v1.inserted_chars.found"] == len(found)
        assert row["reason"] == ("too_much_found" if sum(map(len, found)) > 2 else None)


def test_a_row_that_is_marked_or_of_another_domain_keeps_its_text() -> None:
    batch = documents(["1", "2"])
    assert mark(cast(Stage, Replacer(domains=("code",))), batch).column("text").to_pylist() == ["1", "2"]
    dropped = mark(cast(Stage, Replacer(pattern="1", max_found=0.0)), batch)
    again = mark(cast(Stage, Replacer(instance="second")), dropped)
    assert again.column("text").to_pylist() == ["#", "#"]
    assert again.column("second.removed_chars.found").to_pylist() == [None, 1]


def test_the_verdict_of_pieces_has_the_edits_of_the_whole() -> None:
    texts = ["1", "boom", "x 22", "3 3"]
    edits = judged(cast(Stage, Replacer()), documents(cast(Any, texts))).edits
    assert edits is not None
    rows = [tuple(row[name] for name in ("row", "start", "end")) for row in edits.to_pylist()]
    assert rows == [(0, 0, 1), (2, 2, 4), (3, 0, 1), (3, 2, 3)]


def test_the_counts_are_scores_of_the_stage() -> None:
    names = ["replacer_v1.removed_chars.found", "replacer_v1.inserted_chars.found"]
    assert columns_of(cast(Stage, Replacer())) == dict.fromkeys(names, pa.int64())


def test_a_stage_that_edits_declares_a_reason_and_needs_the_text() -> None:
    with pytest.raises(TypeError, match="edits the text, which is not among the columns"):

        @stage
        class _Blind:
            name: ClassVar[str] = "blind_v1"
            edits = ("found",)
            needs = ("url",)

    @stage
    class _Silent:
        name: ClassVar[str] = "silent_v1"

        def measure(self, batch: pa.RecordBatch) -> Measured:
            return Measured(edits=edit_table([0], [0], [1], ["found"]))

    with pytest.raises(TypeError, match="declares no reason"):
        mark(cast(Stage, _Silent()), documents(["a"]))


@st.composite
def edited_twice(draw: st.DrawFn) -> tuple[list[str | None], list[Edit], list[Edit]]:
    texts, first = draw(edited_texts())
    left = plain_apply(texts, first)
    later: list[Edit] = []
    for row, text in enumerate(left):
        places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6))) if text is not None else []
        later += [
            (row, start, end, "later", draw(st.sampled_from(["", "XY"])))
            for start, end in zip(places[::2], places[1::2], strict=False)
        ]
    return texts, first, later


@given(edited_twice())
def test_one_table_does_what_two_do_one_after_the_other(drawn: Any) -> None:
    texts, first, later = drawn
    left = plain_apply(texts, first)
    column = pa.array(texts, pa.string())
    both = composed(in_bytes(texts, first), in_bytes(left, later))
    require_valid(column, both, (*REASONS, "later"))
    assert apply_edits(column, both).to_pylist() == plain_apply(left, later)
    # What the first took out is theirs, wholly; the later have the rest.
    before, after = (
        {tuple(row[name] for name in ("row", "start", "end", "reason")) for row in table.to_pylist()}
        for table in (in_bytes(texts, first), both)
    )
    taken = {edit for edit in before if edit[1] < edit[2]}
    assert taken <= after
    assert {edit[3] for edit in after - before} <= {"later"}


@pytest.mark.parametrize(
    ("first", "later", "found"),
    [
        # Around what went: in two pieces, of which the first has the replacement.
        ([(2, 4, "a", "")], [(1, 3, "b", "R")], [(1, 2, "b", "R"), (2, 4, "a", ""), (4, 5, "b", "")]),
        # A line with a mask in it goes, the mask with it.
        ([(2, 4, "a", "<m>")], [(0, 7, "b", "")], [(0, 2, "b", ""), (2, 4, "a", ""), (4, 6, "b", "")]),
        # Inside of what was inserted.
        ([(2, 4, "a", "<m>")], [(3, 4, "b", "nn")], [(2, 4, "a", "<nn>")]),
        ([(2, 2, "a", "x")], [(2, 3, "b", "")], []),
        # An insertion stands beside what went.
        ([(2, 4, "a", "")], [(2, 2, "b", "i")], [(2, 2, "b", "i"), (2, 4, "a", "")]),
    ],
)
def test_where_two_edits_meet_the_first_wins(first: Any, later: Any, found: Any) -> None:
    both = composed(*(edit_table(*zip(*((0, *edit) for edit in one), strict=True)) for one in (first, later)))
    assert [tuple(row.values())[1:] for row in both.to_pylist()] == found
