from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shards.schema import DOCUMENT
from stages.base import (
    Measured,
    columns_of,
    completed,
    early_rules,
    failures_of,
    late_limits,
    link_of,
    parameters,
    per_row,
    plain_value,
    reasons_of,
    score_column,
    stage,
    text_of,
)
from stages.checks import KEPT, Check
from stages.failing import FAILURES, Failure
from stages.judges.gopher_quality import GopherQuality
from stages.judges.language import Language
from stages.judges.sample import Sample
from stages.limits import Grouped, Limit, Percentile, Share
from stages.scores import Category, Count, Ratio, Values
from tests.stages.support import stage_of

Batches = Callable[..., pa.RecordBatch]


@stage
class Vowels:
    """Judges by vowels and by the first letter."""

    name: ClassVar[str] = "vowels_v1"
    scores = (Count("chars"), Ratio("vowels"), Category("first"))
    checks = (
        Check("empty", "first", null="drop", allowed="first"),
        Check("few_vowels", "vowels", min="shares.0"),
        Check("many_vowels", "vowels", max="shares.1"),
        Check("long", "chars", max="max_chars"),
        Check("empty", "chars", min=1),
    )

    shares: tuple[Share, Share] = (0.2, 0.8)
    max_chars: Limit | None = None
    first: tuple[str, ...] = ()
    unheard: Literal["keep", "drop"] = "keep"

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        """Measure the text alone."""
        texts = text_of(batch)
        vowels = [sum(letter in "aeiou" for letter in text) / len(text) if text else None for text in texts]
        return {"chars": per_row(batch, len), "vowels": vowels, "first": [text[:1] or None for text in texts]}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.none() | st.text("aeb", max_size=6), max_size=8),
    shares=st.tuples(st.sampled_from([0.0, 0.3333, 0.5]), st.sampled_from([0.5, 0.6667, 1.0])),
    max_chars=st.none() | st.integers(0, 6),
    first=st.sampled_from([(), ("a",), ("a", "b")]),
)
def test_a_verdict_agrees_with_a_plain_loop(
    documents: Batches,
    texts: list[str | None],
    shares: tuple[float, float],
    max_chars: int | None,
    first: tuple[str, ...],
) -> None:
    judge = stage_of(Vowels, shares=shares, max_chars=max_chars, first=first)
    verdict = judge.judge(documents(len(texts), text=texts))
    assert judge.reasons == ("empty", "few_vowels", "many_vowels", "long")
    details = [None] * len(texts) if verdict.detail is None else verdict.detail.to_pylist()
    assert verdict.value is not None
    for row, drawn in enumerate(texts):
        text = drawn or ""
        share = round(sum(letter in "ae" for letter in text) / len(text), 4) if text else None
        expected: tuple[str | None, float | None, str | None] = (None, None, None)
        if not text:
            expected = ("empty", None, None)
        elif first and text[0] not in first:
            expected = ("empty", None, text[0])
        elif share is not None and share < shares[0]:
            expected = ("few_vowels", share, None)
        elif share is not None and share > shares[1]:
            expected = ("many_vowels", share, None)
        elif max_chars is not None and len(text) > max_chars:
            expected = ("long", float(len(text)), None)
        code, value = int(verdict.codes[row]), float(verdict.value[row])
        reason = None if code == KEPT else judge.reasons[code]
        assert (reason, None if np.isnan(value) else value, details[row]) == expected
        scores = {name: column[row].as_py() for name, column in verdict.columns.items()}
        assert scores == {
            "vowels_v1.chars": len(text),
            "vowels_v1.vowels": share,
            "vowels_v1.first": text[:1] or None,
        }


def test_a_failure_hides_what_a_check_says(documents: Batches) -> None:
    @stage
    class Failing:
        """Fails on digits, and drops all else."""

        name: ClassVar[str] = "failing_v1"
        scores = (Count("chars"),)
        checks = (Check("long", "chars", max=0),)
        failures = ("digit",)

        def measure(self, batch: pa.RecordBatch) -> Measured:
            """Fail on digits."""
            texts = text_of(batch)
            failures = {row: Failure("digit", text) for row, text in enumerate(texts) if text.isdigit()}
            return Measured({"chars": per_row(batch, len)}, failures=failures)

    judge = stage_of(Failing)
    verdict = judge.judge(documents(3, text=["ab", "12", ""]))
    assert verdict.codes.tolist() == [0, 1, KEPT]
    assert (*judge.reasons, *failures_of(judge)) == ("long", "digit", *FAILURES)
    assert verdict.value is not None
    np.testing.assert_array_equal(verdict.value, [2.0, np.nan, np.nan])
    assert verdict.detail is not None
    assert verdict.detail.to_pylist() == [None, "12", None]


def test_a_stage_is_a_frozen_checked_dataclass() -> None:
    judge = stage_of(Vowels, max_chars=4, domains=("web",))
    expected = {"shares": (0.2, 0.8), "max_chars": 4.0, "first": (), "unheard": "keep", "domains": ("web",)}
    assert parameters(judge) == expected
    assert judge == stage_of(Vowels, max_chars=4, domains=("web",))
    assert judge.files() == ()
    assert judge.known_languages() is None
    assert judge.named_languages() == {}
    assert pickle.loads(pickle.dumps(judge)) == judge
    with pytest.raises(AttributeError):
        judge.instance = "x"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"max_char": 4}, "max_char"),
        ({"shares": (0.5, 2)}, "2 is not at least 0 and at most 1"),
        ({"unheard": "perhaps"}, "'keep' or 'drop'"),
    ]
    for given_, message in wrong:
        with pytest.raises(pydantic.ValidationError, match=message):
            Vowels(**given_)
    with pytest.raises(pydantic.ValidationError):
        Vowels(4)  # type: ignore[call-arg, arg-type]


def test_a_stage_goes_by_the_name_of_its_instance() -> None:
    one, other = stage_of(Vowels), stage_of(Vowels, instance="again")
    assert (link_of(one), link_of(other)) == ("vowels_v1", "again")
    assert score_column(other, "chars") == "again.chars"
    assert columns_of(other) == {"again.chars": pa.int64(), "again.vowels": pa.float64(), "again.first": pa.string()}
    # What it decides does not depend on its name.
    assert parameters(one) == parameters(other)


def test_the_same_reason_of_two_checks_is_one() -> None:
    assert reasons_of(stage_of(Vowels)) == ("empty", "few_vowels", "many_vowels", "long")
    assert [rule.code for rule in early_rules(stage_of(Vowels))] == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (Check("x", "char"), "the check 'x' is of 'char', which is not a score"),
        (Check("x", "chars", min="least"), "the check 'x' reads 'least', which is not a parameter"),
        (Check("x", "chars", max="leasts.0"), "the check 'x' reads 'leasts.0', which is not a parameter"),
        (Check("x", "chars", null="sometimes"), "the check 'x' reads 'sometimes', which is not a parameter"),
        (Check("x", "chars", allowed="wanted"), "the check 'x' reads 'wanted', which is not a parameter"),
    ],
)
def test_a_check_of_what_there_is_not_is_refused_when_the_class_is_made(check: Check, message: str) -> None:
    class Wrong:
        name: ClassVar[str] = "wrong_v1"
        scores = (Count("chars"),)
        checks = (check,)

        def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
            return {}

    with pytest.raises(TypeError, match=re.escape(message)):
        stage(Wrong)


def test_percentiles_are_listed_and_decide_nothing_yet(documents: Batches) -> None:
    least, most = Percentile(percentile=5), Percentile(percentile=90, by="language")
    judge = stage_of(Vowels, shares=(least, 1.0), max_chars=most)
    assert late_limits(judge) == [(1, "min", least), (3, "max", most)]
    assert judge.judge(documents(2, text=["b" * 99, "a"])).codes.tolist() == [KEPT, KEPT]


def test_parameters_are_plain_values() -> None:
    judge = stage_of(
        GopherQuality,
        min_words=Grouped(language={"en": 5}),
        max_words=Percentile(percentile=99.5, of=("a/*.txt",)),
        stop_words={"xx": ("a", "b")},
    )
    plain = parameters(judge)
    assert plain["min_words"] == {"language": {"en": 5.0}}
    assert plain["max_words"] == {"percentile": 99.5, "of": ["a/*.txt"]}
    assert plain["stop_words"] == {"xx": ("a", "b")}
    assert stage_of(type(judge), **plain) == judge
    assert plain_value([1, {"a": (2, [3])}]) == (1, {"a": (2, (3,))})


def test_a_stage_judges_a_batch_of_the_columns_it_needs() -> None:
    texts = ["It was the best of times, and the worst of times with them. " * 6, "short", None]
    verdict = stage_of(GopherQuality).judge(pa.record_batch({"text": texts}))
    assert verdict.codes.tolist() == [KEPT, 0, 0]
    # As a reader fills them.
    full = pa.record_batch({"text": texts, "language": ["und"] * 3, "domain": [""] * 3})
    same = stage_of(GopherQuality).judge(full)
    assert {name: column.to_pylist() for name, column in verdict.columns.items()} == {
        name: column.to_pylist() for name, column in same.columns.items()
    }
    assert stage_of(Language, min_confidence=0).judge(pa.record_batch({"text": texts})).codes[0] == KEPT


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match=r"gopher_quality_v2 needs the column 'text'; the batch has \['txt'\]"):
        stage_of(GopherQuality).judge(pa.record_batch({"txt": ["a"]}))
    with pytest.raises(ValueError, match="sample_v1 needs the column 'doc_id'"):
        stage_of(Sample, share=0.5).judge(pa.record_batch({"text": ["a"]}))


def test_columns_are_completed_with_the_types_of_documents() -> None:
    @stage
    class Everything:
        """Needs every column that has a default."""

        name: ClassVar[str] = "everything_v1"
        needs = ("text", "url", "host", "date", "licence", "payload", "media_type", "language")

        def measure(self, batch: pa.RecordBatch) -> Measured:
            """Measure nothing."""
            return Measured()

    batch = completed(stage_of(Everything), pa.record_batch({"text": ["a", "b"]}))
    assert all(batch.schema.field(name).type == DOCUMENT.field(name).type for name in batch.schema.names)
    assert (
        batch.select(["language", "domain", "url"]).to_pylist() == [{"language": "und", "domain": "", "url": None}] * 2
    )
    assert {*Everything.needs, "domain"} == set(batch.schema.names)


def test_text_of_null_is_empty(documents: Batches) -> None:
    assert text_of(documents(2, text=[None, "a"])) == ["", "a"]
    assert per_row(documents(2, text=[None, "abc"]), len).tolist() == [0.0, 3.0]
