from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from shards.schema import DOCUMENT
from stages.base import Measured, Verdict, failures_of, per_row, stage, text_of
from stages.checks import KEPT, Check
from stages.failing import FAILURES, STAGE_ERROR, Failure
from stages.limits import AtLeastZero
from stages.marking import joined, judged, mark, unmarked
from stages.scores import Category, Count
from tests.stages.support import stage_of

Batches = Callable[..., pa.RecordBatch]
CHARS = "length_v1.chars"


@stage
class Length:
    """Drops short texts and those that begin with ``b``, fails those with a digit, and adds two columns."""

    name: ClassVar[str] = "length_v1"
    scores = (Count("chars"), Category("first"))
    checks = (
        Check("empty", "chars", min=1),
        Check("short", "chars", min="min_chars"),
        Check("b", "first", forbidden="no"),
    )
    failures: ClassVar[tuple[str, ...]] = ("digit",)
    columns: ClassVar[Mapping[str, pa.DataType]] = {"never": pa.string(), "half": pa.int32()}

    min_chars: AtLeastZero = 3
    no: tuple[str, ...] = ("b",)

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Measure the text alone; refuses to be shown nothing."""
        assert batch.num_rows
        assert "dropped_by" not in batch.schema.names
        texts, chars = text_of(batch), per_row(batch, len)
        failures = {
            row: Failure("digit", f"a digit in {text!r}")
            for row, text in enumerate(texts)
            if any(map(str.isdigit, text))
        }
        # int64 and a language: one is cast to what is declared, the other replaces a column.
        columns = {
            "half": pa.array(chars.astype(np.int64) // 2),
            "language": pa.array([text[:1] or "und" for text in texts]),
        }
        details = pa.array([f"of {text!r}" if "a" in text else None for text in texts], pa.string())
        return Measured({"chars": chars, "first": [text[:1] or None for text in texts]}, columns, failures, details)


@stage
class Other:
    """Declares a column that another stage has too, and drops nothing."""

    name: ClassVar[str] = "other_v1"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"half": pa.int32()}

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Add the column."""
        return Measured(columns={"half": pa.array([-1] * batch.num_rows, pa.int32())})


texts = st.none() | st.text("ab1", max_size=5)
Row = tuple[str | None, str, bool]
rows = st.lists(st.tuples(texts, st.sampled_from(["web", "code"]), st.booleans()), max_size=12)


def made(documents: Batches, drawn: list[Row]) -> pa.RecordBatch:
    return documents(
        len(drawn),
        text=[text for text, _, _ in drawn],
        domain=[domain for _, domain, _ in drawn],
        dropped_by=["before_v1" if dropped else None for *_, dropped in drawn],
        reason=["why" if dropped else None for *_, dropped in drawn],
        value=[0.5 if dropped else None for *_, dropped in drawn],
        failed=[dropped for *_, dropped in drawn],
        detail=["earlier" if dropped else None for *_, dropped in drawn],
    ).replace_schema_metadata({"headrace.unit": "u"})


QUICK = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
CHOICES = st.sampled_from([(), ("web",), ("code", "books")])


@QUICK
@given(drawn=rows, data=st.data(), domains=CHOICES)
def test_cutting_a_batch_in_two_changes_nothing(
    documents: Batches, drawn: list[Row], data: st.DataObject, domains: tuple[str, ...]
) -> None:
    batch = made(documents, drawn)
    cut = data.draw(st.integers(0, len(drawn)))
    judge = stage_of(Length, domains=domains)
    whole = mark(judge, batch)
    parts = [mark(judge, batch.slice(0, cut)), mark(judge, batch.slice(cut))]
    assert [part.schema for part in parts] == [whole.schema] * 2
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([whole]))


@QUICK
@given(drawn=rows, domains=CHOICES, instance=st.sampled_from(["", "again"]))
def test_marks_agree_with_a_plain_loop(
    documents: Batches, drawn: list[Row], domains: tuple[str, ...], instance: str
) -> None:
    batch, link = made(documents, drawn), instance or "length_v1"
    found = mark(stage_of(Length, domains=domains, instance=instance), batch).to_pylist()
    for before, after in zip(batch.to_pylist(), found, strict=True):
        text = before["text"] or ""
        expected = before | {"half": None, "never": None, f"{link}.chars": None, f"{link}.first": None}
        if before["dropped_by"] is None and (not domains or before["domain"] in domains):
            expected |= {"half": len(text) // 2, "language": text[:1] or "und"}
            expected |= {f"{link}.chars": len(text), f"{link}.first": text[:1] or None}
            detail = f"of {text!r}" if "a" in text else None
            if any(map(str.isdigit, text)):
                expected |= {"reason": "digit", "failed": True, "detail": f"a digit in {text!r}"}
            elif len(text) < 3:
                expected |= {"reason": "short" if text else "empty", "value": float(len(text)), "detail": detail}
            elif text[0] == "b":
                expected |= {"reason": "b", "detail": "b"}
            if expected["reason"]:
                expected["dropped_by"] = link
        assert after == expected


@QUICK
@given(drawn=rows)
def test_nothing_is_marked_twice(documents: Batches, drawn: list[Row]) -> None:
    once = mark(stage_of(Length), made(documents, drawn))
    again = mark(stage_of(Length, min_chars=100), once)
    was = [row["dropped_by"] is not None for row in once.to_pylist()]
    for before, after, dropped in zip(once.to_pylist(), again.to_pylist(), was, strict=True):
        assert not dropped or after == before
        assert after["dropped_by"] is not None


@QUICK
@given(drawn=rows)
def test_a_stage_that_stands_twice_has_its_own_scores_each_time(documents: Batches, drawn: list[Row]) -> None:
    batch = made(documents, drawn)
    once = mark(stage_of(Length, min_chars=2), batch)
    twice = mark(stage_of(Length, min_chars=4, instance="again"), once)
    for row in twice.to_pylist():
        judged_again = row["dropped_by"] in (None, "again")
        assert row["again.chars"] == (row[CHARS] if judged_again else None)
        assert row["dropped_by"] != "again" or row[CHARS] in (2, 3)


def test_columns_appear_in_the_declared_order_and_types_even_if_no_row_is_judged(documents: Batches) -> None:
    for batch in (documents(0), documents(2, domain=["code", "code"]), documents(1, text=["enough"])):
        found = mark(stage_of(Length, domains=("web",)), batch)
        assert list(found.schema)[len(DOCUMENT) :] == [
            pa.field("never", pa.string()),
            pa.field("half", pa.int32()),
            pa.field(CHARS, pa.int64()),
            pa.field("length_v1.first", pa.string()),
        ]
        assert found.schema.names[: len(DOCUMENT)] == DOCUMENT.names


def test_a_column_of_an_earlier_stage_is_kept_where_no_row_is_judged(documents: Batches) -> None:
    first = stage_of(Length, domains=("web",))
    batch = mark(first, documents(2, text=["abcd", "abcd"], domain=["web", "code"]))
    assert mark(stage_of(Other, domains=("books",)), batch).column("half").to_pylist() == [2, None]
    assert mark(stage_of(Other, domains=("code",)), batch).column("half").to_pylist() == [2, -1]
    assert mark(stage_of(Other), batch).column("half").to_pylist() == [-1, -1]


def test_metadata_and_schema_of_documents_stay(documents: Batches) -> None:
    batch = made(documents, [("abcd", "web", False), ("a", "web", False), ("x1yz", "code", True)])
    found = mark(stage_of(Length), batch)
    assert found.schema.metadata == {b"headrace.unit": b"u"}
    assert [found.schema.field(name) for name in DOCUMENT.names] == list(batch.schema)


@QUICK
@given(drawn=rows)
def test_unmarked_rows_are_as_if_no_stage_had_judged_them(documents: Batches, drawn: list[Row]) -> None:
    batch = unmarked(mark(stage_of(Length), made(documents, drawn)))
    clean = [(text, domain, False) for text, domain, _ in drawn]
    assert (
        batch.select(["dropped_by", "reason", "value", "detail", "failed"]).to_pylist()
        == made(documents, clean).select(["dropped_by", "reason", "value", "detail", "failed"]).to_pylist()
    )
    judge = stage_of(Length, instance="again")
    columns = ["dropped_by", "reason", "value", "detail", "failed", "again.chars"]
    found = mark(judge, batch).select(columns).to_pylist()
    assert found == mark(judge, made(documents, clean)).select(columns).to_pylist()


def test_a_stage_that_judges_too_few_rows_is_caught(documents: Batches) -> None:
    @stage
    class Broken:
        """Forgets a row."""

        name: ClassVar[str] = "broken_v1"

        def measure(self, batch: pa.RecordBatch) -> Measured:
            """Measure nothing."""
            return Measured()

        def judge(self, batch: pa.RecordBatch) -> Verdict:
            """Judge one row less than it was shown."""
            return Verdict(np.full(batch.num_rows - 1, KEPT, np.int8))

    with pytest.raises(AssertionError, match="broken_v1 judged 1 of 2 rows"):
        mark(stage_of(Broken), documents(2))


class PanicError(BaseException):
    """What a panic in Rust becomes in Python: no Exception."""


ERRORS = {"v": ValueError, "m": MemoryError, "r": RecursionError, "p": PanicError, "a": AssertionError}


@stage
class Fragile:
    """``Length``, but it raises an error at the first text that begins with ``!``: the one of its next letter."""

    name: ClassVar[str] = "fragile_v1"
    scores = Length.scores
    checks = Length.checks
    failures: ClassVar[tuple[str, ...]] = Length.failures
    columns: ClassVar[Mapping[str, pa.DataType]] = Length.columns

    min_chars: Annotated[int, pydantic.Field(ge=0)] = 3
    no: tuple[str, ...] = ("b",)

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Fail, or measure the length."""
        for row, text in enumerate(text_of(batch)):
            if text.startswith("!"):
                raise ERRORS[text[1]](f"row {row} of {batch.num_rows}\nand more")
        return Length().measure(batch)


fragile_texts = st.sampled_from(["!v", "!m", "!r", "!p", "!a", "a", "abcd", "bcde", "12", ""])


@QUICK
@given(
    drawn=st.lists(st.tuples(fragile_texts, st.sampled_from(["web", "code"]), st.booleans()), max_size=40),
    cuts=st.sets(st.integers(0, 40), max_size=3),
    domains=CHOICES,
)
def test_documents_that_a_stage_fails_on_are_failed_and_no_others_in_any_batch(
    documents: Batches, drawn: list[Row], cuts: set[int], domains: tuple[str, ...]
) -> None:
    batch = made(documents, drawn)
    judge, plain = stage_of(Fragile, domains=domains), stage_of(Length, domains=domains, instance="fragile_v1")
    edges = [0, *sorted(cut for cut in cuts if cut <= len(drawn)), len(drawn)]
    parts = [mark(judge, batch.slice(start, end - start)) for start, end in itertools.pairwise(edges)]
    found = pa.Table.from_batches(parts)
    assert found.schema == mark(plain, batch).schema
    # Each row alone, by the stage that fails on nothing.
    added = {"never": None, "half": None, "fragile_v1.chars": None, "fragile_v1.first": None}
    expected = []
    for row in range(len(drawn)):
        (before,), (after,) = batch.slice(row, 1).to_pylist(), mark(plain, batch.slice(row, 1)).to_pylist()
        text = before["text"] or ""
        if before["dropped_by"] is None and text.startswith("!") and after["half"] is not None:
            detail = f"{ERRORS[text[1]].__name__}: row 0 of 1"
            after = before | added | {"failed": True, "detail": detail}
            after |= {"dropped_by": judge.name, "reason": STAGE_ERROR}
        expected.append(after)
    assert found.to_pylist() == expected


def test_a_batch_of_failures_alone_has_the_schema_of_any_other(documents: Batches) -> None:
    judge = stage_of(Fragile)
    found = mark(judge, documents(3, text=["!v", "!p", "!m"]))
    assert found.schema == mark(judge, documents(1, text=["abcd"])).schema
    assert found.column("failed").to_pylist() == [True] * 3
    assert found.column("language").to_pylist() == ["und"] * 3
    assert found.column("fragile_v1.chars").null_count == 3


@pytest.mark.parametrize(
    "error", [UserError("no model"), FileNotFoundError("gone"), KeyboardInterrupt(), SystemExit(3)]
)
def test_what_is_not_of_a_document_is_raised_at_once(documents: Batches, error: BaseException) -> None:
    calls: list[int] = []

    @stage
    class Halting:
        """Raises it."""

        name: ClassVar[str] = "halting_v1"

        def measure(self, batch: pa.RecordBatch) -> Measured:
            """Raise."""
            calls.append(batch.num_rows)
            raise error

    with pytest.raises(type(error)):
        mark(stage_of(Halting), documents(20))
    assert calls == [20]


def test_a_stage_that_fails_on_any_document_is_broken_and_fails_none(documents: Batches) -> None:
    @stage
    class Broken:
        """Reads a column that no batch has."""

        name: ClassVar[str] = "broken_v1"

        def measure(self, batch: pa.RecordBatch) -> Measured:
            """Fail, on some documents otherwise than on others."""
            if any(text.startswith("!") for text in text_of(batch)):
                raise PanicError
            return Measured(columns={"x": batch.column("nowhere")})

    broken = stage_of(Broken)
    for texts in (["a"], ["a", "b"], ["a", "!"], ["!", *"abc"]):
        with pytest.raises(KeyError, match="nowhere"):
            mark(broken, documents(len(texts), text=texts))
    # An error that a plain document does not meet says nothing against the stage, even if all documents here meet it.
    assert mark(broken, documents(2, text=["!", "!!"])).column("reason").to_pylist() == [STAGE_ERROR] * 2


def test_generic_failures_follow_the_declared_ones(documents: Batches) -> None:
    judge = stage_of(Fragile)
    assert failures_of(judge) == ("digit", *FAILURES)
    batch = documents(3, text=["!p", "1", "abcd"]).select(["text", "language", "domain"])
    codes = judged(judge, batch).codes
    assert [*judge.reasons, *failures_of(judge)][codes[0]] == STAGE_ERROR
    assert [*judge.reasons, *failures_of(judge)][codes[1]] == "digit"
    assert codes[2] == KEPT


def test_a_judge_in_another_process_is_shown_what_the_stage_needs(documents: Batches) -> None:
    shown: list[pa.RecordBatch] = []
    judge = stage_of(Length, domains=("web",))

    def elsewhere(stage: object, batch: pa.RecordBatch) -> Verdict:
        shown.append(batch)
        return joined(judge, batch, [(range(1), Failure(STAGE_ERROR, "gone"))])

    batch = documents(3, text=["abc"] * 3, domain=["web", "code", "web"], dropped_by=["x", None, None])
    found = mark(judge, batch, elsewhere)
    assert [(one.num_rows, set(one.schema.names)) for one in shown] == [(1, {"text", "language", "domain"})]
    assert found.column("reason").to_pylist() == [None, None, STAGE_ERROR]
    assert found.column(CHARS).null_count == 3
