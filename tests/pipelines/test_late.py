from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.late import (
    CUTS,
    HISTOGRAM,
    LATE,
    REMARK,
    Redecision,
    added_up,
    counted_section,
    late_rules,
    late_section,
    limits_section,
    measures_of,
    remarks,
)
from pipelines.reading import without_textless
from pipelines.rejudge import obstacles
from shards.schema import DOCUMENT
from stages.base import Measured, Stage, stage
from stages.checks import Check
from stages.judges.gopher_quality import GopherQuality
from stages.limits import AtLeastZero, Share
from stages.marking import mark
from stages.readers.base import READ
from stages.scores import Count, Ratio, Values


@stage
class Letters:
    """Drops texts by their length, and by the share of letters in them."""

    name: ClassVar[str] = "letters_v1"
    scores = (Count("chars"), Ratio("letters"))
    checks = (
        Check("short", "chars", min="min_chars"),
        Check("long", "chars", max="max_chars"),
        Check("few_letters", "letters", min="min_letters"),
    )

    min_chars: AtLeastZero = 1
    max_chars: AtLeastZero = 100
    min_letters: Share = 0.0

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        """Count."""
        texts = batch.column("text").to_pylist()
        shares = [sum(c.isalpha() for c in text) / len(text) if text else np.nan for text in texts]
        return {"chars": [len(text) for text in texts], "letters": shares}


TEXTS = st.text("ab1 ", max_size=6)
ROWS = st.lists(
    st.tuples(TEXTS, st.sampled_from(["en", "de"]), st.sampled_from(["web", "code"])), min_size=1, max_size=20
)
QUICK = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def documents(rows: Sequence[tuple[str, str, str]]) -> pa.RecordBatch:
    values = [
        {
            "doc_id": i,
            "text": text,
            "source_index": 0,
            "offset": i,
            "language": language,
            "domain": domain,
            "failed": False,
        }
        for i, (text, language, domain) in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(values, schema=DOCUMENT)


def judged(chain: Sequence[Stage], batch: pa.RecordBatch) -> pa.Table:
    for one in chain:
        batch = mark(one, batch)
    return pa.Table.from_batches([batch])


def chain(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Stage, ...]:
    made = (Letters(**first), Letters(**second, instance="again", domains=("web",)))
    return tuple(cast(Stage, one) for one in made)


def ends(table: pa.Table) -> list[Any]:
    return table.select(["doc_id", "dropped_by", "reason", "value", "failed"]).to_pylist()


NUMBER = st.integers(0, 5) | st.fixed_dictionaries(
    {"language": st.dictionaries(st.sampled_from(["en", "de"]), st.integers(0, 5), min_size=1)},
    optional={"default": st.integers(0, 5)},
)
LIMITS = st.fixed_dictionaries(
    {"min_chars": NUMBER, "min_letters": st.sampled_from([0.0, 0.25, 0.5])}, optional={"max_chars": st.integers(0, 6)}
)


@QUICK
@given(rows=ROWS, old=st.tuples(LIMITS, LIMITS), new=st.tuples(LIMITS, LIMITS))
def test_tightened_limits_mark_as_if_the_chain_had_judged_with_them(rows: Any, old: Any, new: Any) -> None:
    before, after = chain(*old), chain(*new)
    if obstacles(before, after):
        return
    stored = judged(before, documents(rows))
    fresh = judged(after, documents(rows))
    found = Redecision(after, is_tightened=True).early(stored)
    assert ends(found) == ends(fresh)
    marks = remarks(stored, found)
    assert marks.schema == REMARK
    moved = [
        a["doc_id"]
        for a, b in zip(ends(stored), ends(fresh), strict=True)
        if (a["dropped_by"], a["reason"]) != (b["dropped_by"], b["reason"])
    ]
    assert marks.column("doc_id").to_pylist() == moved


@stage
class Tongue:
    """Sets the language by a letter of the text."""

    name: ClassVar[str] = "tongue_v1"
    letter: str = "a"

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Look for the letter."""
        found = ["de" if self.letter in (text or "") else "en" for text in batch.column("text").to_pylist()]
        return Measured(columns={"language": pa.array(found)})

    def known_languages(self) -> frozenset[str]:
        """Return both languages."""
        return frozenset({"en", "de"})


DOMAINS = st.sampled_from([(), ("web",), ("code",), ("web", "code")])


@QUICK
@given(
    rows=ROWS,
    old=st.tuples(LIMITS, LIMITS, LIMITS),
    new=st.tuples(LIMITS, LIMITS, LIMITS),
    of=st.tuples(*[DOMAINS] * 2),
)
def test_a_limit_is_by_the_language_that_a_document_had_then(rows: Any, old: Any, new: Any, of: Any) -> None:
    def with_setters(limits: Any) -> tuple[Stage, ...]:
        links = [Letters(**one, instance=f"letters{place}") for place, one in enumerate(limits)]
        first, second = (Tongue(letter="ab"[place], domains=of[place], instance=f"t{place}") for place in range(2))
        return tuple(cast(Stage, one) for one in (links[0], first, links[1], second, links[2]))

    before, after = with_setters(old), with_setters(new)
    if obstacles(before, after):
        return
    texts = documents([(text, "und", domain) for text, _, domain in rows])
    found = Redecision(after, is_tightened=True).early(judged(before, texts))
    assert ends(found) == ends(judged(after, texts))


def test_what_is_not_tightened_is_left_as_it_was_judged() -> None:
    limits = chain({"min_chars": 3}, {})
    stored = judged(limits, documents([("a", "en", "web"), ("aaaa", "en", "web")]))
    assert Redecision(limits, is_tightened=False).early(stored) is stored


PERCENTILES = st.fixed_dictionaries(
    {"percentile": st.sampled_from([0, 10, 50, 90, 100])}, optional={"by": st.sampled_from(["language", "domain"])}
)


def cut(chain: tuple[Stage, ...], counted: pa.Table) -> pa.Table:
    """The slow definition of a cut: numpy's percentile of all scores that were counted."""
    rows = []
    for one in measures_of(chain):
        groups: dict[Any, list[int]] = {}
        for row in counted.to_pylist():
            if (row["link"], row["check"], row["end"]) == one.key:
                groups.setdefault(row["group"], []).extend([row["step"]] * row["rows"])
        for group, steps in groups.items():
            step = int(np.percentile(steps, one.limit.percentile, method="inverted_cdf"))
            rows.append(dict(zip(CUTS.names, [*one.key, group, step], strict=True)))
    return pa.Table.from_pylist(rows, CUTS)


@QUICK
@given(rows=ROWS, low=PERCENTILES, high=PERCENTILES)
def test_late_limits_are_of_what_no_early_check_dropped_and_apply_together(rows: Any, low: Any, high: Any) -> None:
    limits = chain({"min_chars": 2, "min_letters": low}, {"max_chars": high, "min_letters": 0.1})
    stored = judged(limits, documents(rows))
    redecision = Redecision(limits, is_tightened=False)
    counted = redecision.histograms(stored)
    assert counted.schema == HISTOGRAM
    alive = [row for row in stored.to_pylist() if row["dropped_by"] is None]
    first = [row for row in counted.to_pylist() if row["link"] == "letters_v1"]
    assert sum(row["rows"] for row in first) == sum(row["letters_v1.letters"] is not None for row in alive)
    cuts = cut(limits, counted)
    found = redecision.late(stored, cuts)
    steps = {(row["link"], row["group"]): row["step"] for row in cuts.to_pylist()}
    for before, after in zip(stored.to_pylist(), ends(found), strict=True):
        expected: tuple[Any, Any] = (before["dropped_by"], before["reason"])
        if before["dropped_by"] is None:
            share, chars = before["letters_v1.letters"], before["again.chars"]
            least = steps.get(("letters_v1", before.get(low.get("by", ""))))
            most = steps.get(("again", before.get(high.get("by", ""))))
            if share is not None and least is not None and round(share * 10_000) < least:
                expected = ("letters_v1" + LATE, "few_letters")
            elif chars is not None and most is not None and chars > most:
                expected = ("again" + LATE, "long")
        assert (after["dropped_by"], after["reason"]) == expected


def test_only_measured_limits_are_late() -> None:
    both = Letters(min_chars=3, max_chars={"percentile": 90}, min_letters={"percentile": 5, "by": "language"})
    cuts = pa.Table.from_pylist(
        [
            {"link": "letters_v1", "check": 1, "end": "max", "group": None, "step": 7},
            {"link": "letters_v1", "check": 2, "end": "min", "group": "en", "step": 2_500},
        ],
        CUTS,
    )
    first, second = late_rules(cast(Stage, both), cuts)
    assert (first.check.reason, first.least, first.greatest and first.greatest.default) == ("long", None, 7)
    assert (second.check.reason, second.greatest) == ("few_letters", None)
    assert second.least is not None
    assert (second.least.by, dict(second.least.steps)) == ("language", {"en": 2_500})


def test_sections_follow_the_limits_and_nothing_else() -> None:
    one = (cast(Stage, Letters(max_chars={"percentile": 90})),)
    other = (cast(Stage, Letters(max_chars={"percentile": 91})),)
    fixed = (cast(Stage, Letters(max_chars=5)),)
    assert late_section(one) != late_section(other)
    assert late_section(fixed) == []
    assert limits_section(one) != limits_section(fixed)
    assert late_section(one) == [["letters_v1", 1, "max", "letters_v1.chars", "long", {"percentile": 90.0}]]
    assert counted_section(measures_of(one)) == counted_section(measures_of(other)) != []
    grouped = (cast(Stage, Letters(max_chars={"percentile": 90, "by": "language"})),)
    assert counted_section(measures_of(one)) != counted_section(measures_of(grouped))


def test_histograms_add_up_in_any_parts() -> None:
    rows = [("a", 0, "max", group, step, 1) for group in ("de", None) for step in (3, 1, 3)]
    whole = pa.Table.from_pylist([dict(zip(HISTOGRAM.names, row, strict=True)) for row in rows], HISTOGRAM)
    found = added_up([whole.slice(0, 2), whole.slice(2)])
    assert found.schema == HISTOGRAM
    assert [(row["group"], row["step"], row["rows"]) for row in found.to_pylist()] == [
        ("de", 1, 1),
        ("de", 3, 2),
        (None, 1, 1),
        (None, 3, 2),
    ]


@stage
class Tagger:
    """Sets the language by a letter."""

    name: ClassVar[str] = "tagger_v1"
    needs = ("text", "language")

    def known_languages(self) -> frozenset[str]:
        """Return both."""
        return frozenset({"en", "de"})

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Look for the letter."""
        found = ["en" if "a" in text else "de" for text in batch.column("text").to_pylist()]
        return Measured(columns={"language": pa.array(found, pa.string())})


def test_a_limit_by_language_knows_none_before_the_stage_that_sets_it() -> None:
    def with_limits(most: int) -> tuple[Stage, ...]:
        first = Letters(min_chars={"language": {"en": 4}, "default": 1})
        last = Letters(max_chars={"language": {"en": most}}, instance="again")
        return tuple(cast(Stage, one) for one in (first, Tagger(), last))

    old, new = with_limits(9), with_limits(2)
    batch = documents([(text, "und", "web") for text in ("aa", "aaa", "bbb", "", "aaaaa")])
    stored, fresh = judged(old, batch), judged(new, batch)
    assert [row["dropped_by"] for row in ends(fresh)] == [None, "again", None, "letters_v1", "again"]
    assert ends(Redecision(new, is_tightened=True).early(stored)) == ends(fresh) != ends(stored)


def test_what_was_left_without_a_text_came_through_the_whole_chain() -> None:
    kept = {"min_alphabetic_words": 0, "min_stop_words": 0}
    old, new = ((cast(Stage, GopherQuality(min_words=words, **kept)),) for words in (0, 1))
    batch = documents([("", "en", "web"), ("some words", "en", "web")])
    place = batch.schema.get_field_index("text")
    batch = batch.set_column(place, batch.schema.field(place), pa.array([None, "some words"], pa.string()))
    stored, fresh = (pa.Table.from_batches([without_textless(mark(*one, batch))]) for one in (old, new))
    assert [row["dropped_by"] for row in ends(stored)] == [READ, None]
    assert ends(Redecision(new, is_tightened=True).early(stored)) == ends(fresh) != ends(stored)


def test_a_verdict_table_is_read_for_what_is_decided_alone() -> None:
    limits = chain({"max_chars": {"percentile": 90}}, {})
    had = ["doc_id", "text_bytes", "dropped_by", "letters_v1.chars", "letters_v1.letters", "again.chars", "language"]
    assert Redecision(limits, is_tightened=False).columns(had) == [
        "doc_id",
        "language",
        "dropped_by",
        "letters_v1.chars",
    ]
    assert "again.chars" in Redecision(limits, is_tightened=True).columns(had)
