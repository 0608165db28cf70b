from __future__ import annotations

import itertools
import pickle
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
from stages.base import (
    KEPT,
    Stage,
    Verdict,
    failures_of,
    first_failing,
    judged,
    keep_all,
    mark,
    parameters,
    per_row,
    stage,
    text_of,
)
from stages.failing import FAILURES, STAGE_ERROR

Batches = Callable[..., pa.RecordBatch]


@stage
class Length:
    """Drops short texts, fails those with a digit, and adds two columns, one of which not every verdict has."""

    name: ClassVar[str] = "length_v1"
    reasons: ClassVar[tuple[str, ...]] = ("empty", "short")
    failures: ClassVar[tuple[str, ...]] = ("digit",)
    columns: ClassVar[Mapping[str, pa.DataType]] = {"never": pa.string(), "chars": pa.int32()}

    min_chars: Annotated[int, pydantic.Field(ge=0)] = 3

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Judge by text alone; refuses to be shown nothing, or a marked row."""
        assert batch.num_rows
        assert batch.column("dropped_by").null_count == batch.num_rows
        chars = per_row(batch, len)
        digit = np.array([any(c.isdigit() for c in text) for text in text_of(batch)])
        verdict = first_failing((0, chars == 0, chars), (1, chars < self.min_chars, chars), (2, digit, chars * np.nan))
        detail = pa.array([f"a digit in {text!r}" for text in text_of(batch)])
        # int64 and a language: one is cast to what is declared, the other replaces a column.
        columns = {
            "chars": pa.array(chars.astype(np.int64)),
            "language": pa.array([text[:1] or "und" for text in text_of(batch)]),
        }
        return Verdict(verdict.codes, verdict.value, columns, detail)


@stage
class Other:
    """Declares a column that another stage has too, and gives it only where it judges."""

    name: ClassVar[str] = "other_v1"
    reasons: ClassVar[tuple[str, ...]] = ("odd",)
    columns: ClassVar[Mapping[str, pa.DataType]] = {"chars": pa.int32()}

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Drop nothing."""
        return Verdict(keep_all(batch.num_rows), columns={"chars": pa.array([-1] * batch.num_rows, pa.int32())})


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
    judge = Length(domains=domains)
    whole = mark(judge, batch)
    parts = [mark(judge, batch.slice(0, cut)), mark(judge, batch.slice(cut))]
    assert [part.schema for part in parts] == [whole.schema] * 2
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([whole]))


@QUICK
@given(drawn=rows, domains=CHOICES)
def test_marks_agree_with_a_plain_loop(documents: Batches, drawn: list[Row], domains: tuple[str, ...]) -> None:
    batch = made(documents, drawn)
    found = mark(Length(domains=domains), batch).to_pylist()
    for before, after in zip(batch.to_pylist(), found, strict=True):
        text = before["text"] or ""
        expected = before | {"chars": None, "never": None}
        if before["dropped_by"] is None and (not domains or before["domain"] in domains):
            expected |= {"chars": len(text), "language": text[:1] or "und"}
            digit = any(c.isdigit() for c in text)
            reason = "empty" if not text else "short" if len(text) < 3 else "digit" if digit else None
            if reason is not None:
                expected |= {"dropped_by": "length_v1", "reason": reason, "failed": reason == "digit"}
                expected |= {"value": None if reason == "digit" else float(len(text)), "detail": f"a digit in {text!r}"}
        assert after == expected


@QUICK
@given(drawn=rows)
def test_nothing_is_marked_twice(documents: Batches, drawn: list[Row]) -> None:
    once = mark(Length(), made(documents, drawn))
    again = mark(Length(min_chars=100), once)
    was = [row["dropped_by"] is not None for row in once.to_pylist()]
    for before, after, dropped in zip(once.to_pylist(), again.to_pylist(), was, strict=True):
        assert not dropped or after == before
        assert after["dropped_by"] is not None


def test_columns_appear_in_the_declared_order_and_types_even_if_no_row_is_judged(documents: Batches) -> None:
    names = ["chars", "never"]
    for batch in (documents(0), documents(2, domain=["code", "code"]), documents(1, text=["enough"])):
        found = mark(Length(domains=("web",)), batch)
        added = [field for field in found.schema if field.name in names]
        assert added == [pa.field("never", pa.string()), pa.field("chars", pa.int32())]
        assert found.schema.names[: len(DOCUMENT)] == DOCUMENT.names


def test_a_column_of_an_earlier_stage_is_kept_where_no_row_is_judged(documents: Batches) -> None:
    batch = mark(Length(domains=("web",)), documents(2, text=["abcd", "abcd"], domain=["web", "code"]))
    assert mark(Other(domains=("books",)), batch).column("chars").to_pylist() == [4, None]
    assert mark(Other(domains=("code",)), batch).column("chars").to_pylist() == [4, -1]
    assert mark(Other(), batch).column("chars").to_pylist() == [-1, -1]


def test_metadata_and_schema_of_documents_stay(documents: Batches) -> None:
    batch = made(documents, [("abcd", "web", False), ("a", "web", False), ("x1yz", "code", True)])
    found = mark(Length(), batch)
    assert found.schema.metadata == {b"headrace.unit": b"u"}
    assert [found.schema.field(name) for name in DOCUMENT.names] == list(batch.schema)


def test_a_stage_that_judges_too_few_rows_is_caught(documents: Batches) -> None:
    @stage
    class Broken:
        """Forgets a row."""

        name: ClassVar[str] = "broken_v1"
        reasons: ClassVar[tuple[str, ...]] = ("x",)

        def judge(self, batch: pa.RecordBatch) -> Verdict:
            """Judge one row less than it was shown."""
            return Verdict(keep_all(batch.num_rows - 1))

    with pytest.raises(AssertionError, match="broken_v1 judged 1 of 2 rows"):
        mark(Broken(), documents(2))


def test_the_first_failing_check_decides_with_its_own_measure() -> None:
    one, other = np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])
    verdict = first_failing((0, one > 2, one), (1, other > 10, other))
    assert verdict.codes.tolist() == [KEPT, 1, 0]
    np.testing.assert_array_equal(verdict.value, [np.nan, 20.0, 3.0])


def test_a_stage_is_a_frozen_checked_dataclass() -> None:
    judge = Length(min_chars=4, domains=("web",))
    assert isinstance(judge, Stage)
    assert parameters(judge) == {"min_chars": 4, "domains": ("web",)}
    assert judge == Length(min_chars=4, domains=("web",))
    assert judge.files() == ()
    assert pickle.loads(pickle.dumps(judge)) == judge
    with pytest.raises(AttributeError):
        judge.min_chars = 5
    with pytest.raises(pydantic.ValidationError, match="min_char"):
        Length(min_char=4)
    with pytest.raises(pydantic.ValidationError, match="greater than or equal to 0"):
        Length(min_chars=-1)
    with pytest.raises(pydantic.ValidationError):
        Length(4)


def test_text_of_null_is_empty(documents: Batches) -> None:
    assert text_of(documents(2, text=[None, "a"])) == ["", "a"]
    assert per_row(documents(2, text=[None, "abc"]), len).tolist() == [0.0, 3.0]


class PanicError(BaseException):
    """What a panic in Rust becomes in Python: no Exception."""


ERRORS = {"v": ValueError, "m": MemoryError, "r": RecursionError, "p": PanicError, "a": AssertionError}


@stage
class Fragile:
    """``Length``, but it raises an error at the first text that begins with ``!``: the one of its next letter."""

    name: ClassVar[str] = "fragile_v1"
    reasons: ClassVar[tuple[str, ...]] = Length.reasons
    failures: ClassVar[tuple[str, ...]] = Length.failures
    columns: ClassVar[Mapping[str, pa.DataType]] = Length.columns

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Fail, or judge by length."""
        for row, text in enumerate(text_of(batch)):
            if text.startswith("!"):
                raise ERRORS[text[1]](f"row {row} of {batch.num_rows}\nand more")
        verdict = Length(min_chars=3).judge(batch)
        # Where nothing is dropped there is nothing to say: parts of a verdict that only some batches have.
        return verdict if (verdict.codes != KEPT).any() else Verdict(verdict.codes, columns=verdict.columns)


fragile_texts = st.sampled_from(["!v", "!m", "!r", "!p", "!a", "a", "abcd", "12", ""])


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
    judge, plain = Fragile(domains=domains), Length(domains=domains)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(drawn)), len(drawn)]
    parts = [mark(judge, batch.slice(start, end - start)) for start, end in itertools.pairwise(edges)]
    found = pa.Table.from_batches(parts)
    assert found.schema == mark(plain, batch).schema
    # Each row alone, by the stage that fails on nothing.
    expected = []
    for row in range(len(drawn)):
        (before,), (after,) = batch.slice(row, 1).to_pylist(), mark(plain, batch.slice(row, 1)).to_pylist()
        text = before["text"] or ""
        if before["dropped_by"] is None and text.startswith("!") and after["chars"] is not None:
            detail = f"{ERRORS[text[1]].__name__}: row 0 of 1"
            after = before | {"chars": None, "never": None, "failed": True, "detail": detail}
            after |= {"dropped_by": judge.name, "reason": STAGE_ERROR}
        elif after["dropped_by"] == plain.name:
            after["dropped_by"] = judge.name
        expected.append(after)
    assert found.to_pylist() == expected


def test_a_batch_of_failures_alone_has_the_schema_of_any_other(documents: Batches) -> None:
    found = mark(Fragile(), documents(3, text=["!v", "!p", "!m"]))
    assert found.schema == mark(Fragile(), documents(1, text=["abcd"])).schema
    assert found.column("failed").to_pylist() == [True] * 3
    assert found.column("language").to_pylist() == ["und"] * 3


@pytest.mark.parametrize(
    "error", [UserError("no model"), FileNotFoundError("gone"), KeyboardInterrupt(), SystemExit(3)]
)
def test_what_is_not_of_a_document_is_raised_at_once(documents: Batches, error: BaseException) -> None:
    calls: list[int] = []

    @stage
    class Halting:
        """Raises it."""

        name: ClassVar[str] = "halting_v1"
        reasons: ClassVar[tuple[str, ...]] = ("x",)

        def judge(self, batch: pa.RecordBatch) -> Verdict:
            """Raise."""
            calls.append(batch.num_rows)
            raise error

    with pytest.raises(type(error)):
        mark(Halting(), documents(20))
    assert calls == [20]


def test_a_stage_that_fails_on_any_document_is_broken_and_fails_none(documents: Batches) -> None:
    @stage
    class Broken:
        """Reads a column that no batch has."""

        name: ClassVar[str] = "broken_v1"
        reasons: ClassVar[tuple[str, ...]] = ("x",)

        def judge(self, batch: pa.RecordBatch) -> Verdict:
            """Fail, on some documents otherwise than on others."""
            if any(text.startswith("!") for text in text_of(batch)):
                raise PanicError
            return Verdict(keep_all(batch.num_rows), columns={"x": batch.column("nowhere")})

    for texts in (["a"], ["a", "b"], ["a", "!"], ["!", *"abc"]):
        with pytest.raises(KeyError, match="nowhere"):
            mark(Broken(), documents(len(texts), text=texts))
    # An error that a plain document does not meet says nothing against the stage, even if all documents here meet it.
    assert mark(Broken(), documents(2, text=["!", "!!"])).column("reason").to_pylist() == [STAGE_ERROR] * 2


def test_generic_failures_follow_the_declared_ones(documents: Batches) -> None:
    assert failures_of(Length) == failures_of(Length()) == ("digit", *FAILURES)
    codes = judged(Fragile(), documents(3, text=["!p", "1", "abcd"])).codes
    assert codes.tolist() == [3, 1, KEPT]
    assert (*Fragile.reasons, *failures_of(Fragile))[codes[0]] == STAGE_ERROR
