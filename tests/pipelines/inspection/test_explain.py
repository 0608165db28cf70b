from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pydantic
from hypothesis import given
from hypothesis import strategies as st

from pipelines.inspection.explain import Explained, Explainer
from pipelines.late import CUTS
from pipelines.planning.labels import LabelRules, SourceLabels
from stages.base import Measured, stage, text_of
from stages.checks import Check
from stages.limits import Limit
from stages.marking import mark
from stages.readers import Reading
from stages.readers.base import BatchBuilder, Row, Source
from stages.scores import Count, Values


@stage
class Tongue:
    """Sets the language to the first word, and needs one."""

    name: ClassVar[str] = "tongue_v1"
    scores = (Count("words"),)
    checks = (Check("no_words", "words", min=1),)

    def measure(self, batch: pa.RecordBatch) -> Measured:
        words = [text.split() for text in text_of(batch)]
        languages = pa.array([one[0] if one else "und" for one in words], pa.string())
        return Measured({"words": [len(one) for one in words]}, {"language": languages})


@stage
class Length:
    name: ClassVar[str] = "length_v1"
    scores = (Count("chars"),)
    checks = (Check("short", "chars", min="min_chars"), Check("long", "chars", max="max_chars"))
    min_chars: Limit = 8
    max_chars: Limit | None = None

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        return {"chars": [_length(text) for text in text_of(batch)]}


def _length(text: str) -> int:
    if "break" in text:
        raise ValueError("broken")
    return len(text)


@stage
class Lucky:
    name: ClassVar[str] = "lucky_v1"
    needs = ("doc_id",)
    scores = (Count("odd"),)
    checks = (Check("unlucky", "odd", max=0),)
    share: Annotated[int, pydantic.Field(ge=0)] = 0

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        return {"odd": [doc_id % 2 for doc_id in batch.column("doc_id").to_pylist()]}


LABELS = LabelRules((SourceLabels("web", None, 0),), (("books", ("*.books.example",)),)).labels([(0, 1, 0)])
READING: Any = Reading()
BY_LANGUAGE = {"percentile": 50, "by": "language"}


def batch_of(texts: Sequence[str | None], urls: Sequence[str] = ()) -> pa.RecordBatch:
    builder = BatchBuilder(Source(0, "test", domain=""))
    for number, text in enumerate(texts):
        url = urls[number] if number < len(urls) else None
        row = Row(10 * number, None if text is None else text.encode(), url=url)
        builder.add(row.fail("bad_json", "no JSON") if text is None else row)
    found = builder.flush()
    assert found is not None
    return found


def explained(texts: Sequence[str | None], *chain: Any, **settings: Any) -> list[Explained]:
    return list(Explainer(READING, tuple(chain), LABELS, **settings).explain(batch_of(texts)))


def test_every_stage_is_shown_also_after_the_first_stop() -> None:
    short, fine = explained(["de x", "de and some more"], Length(), Tongue())
    assert (short.verdict, short.end and short.end[:3]) == ("dropped", ("length_v1", "short", 4.0))
    assert [(step.link, [(s.name, s.value) for s in step.scores]) for step in short.steps[1:]] == [
        ("length_v1", [("chars", 4)]),
        ("tongue_v1", [("words", 2)]),
    ]
    assert [asked.drops for asked in short.steps[1].scores[0].limits] == [True]
    assert (fine.verdict, fine.end, fine.language, fine.domain) == ("kept", None, "de", "web")


def test_the_limit_shown_is_that_of_the_documents_language() -> None:
    length = Length(min_chars={"language": {"de": 4}, "default": 50})
    de, en = explained(["de x", "en and more"], Tongue(), length)
    asked = [one.steps[2].scores[0].limits[0] for one in (de, en)]
    assert [(one.words, one.number, one.drops) for one in asked] == [
        ("at least 4 for de", 4.0, False),
        ("at least 50 for en", 50.0, True),
    ]


def test_what_a_reader_drops_or_fails_is_shown_as_such_in_its_place() -> None:
    first, failed, last = explained(["de and some more", None, "en and some more"], Length())
    assert (failed.verdict, [step.link for step in failed.steps], failed.offset) == ("failed", ["read"], 10)
    assert failed.steps[0].end == failed.end
    assert failed.end is not None
    assert (failed.end.dropped_by, failed.end.reason, failed.end.detail) == ("read", "bad_json", "no JSON")
    assert [one.text for one in (first, last)] == ["de and some more", "en and some more"]


def test_what_the_reader_measured_comes_first_with_its_limits() -> None:
    builder = BatchBuilder(Source(0, "test"))
    row = Row(0)
    assert row.measure(Source(0, "test"), "status", 404)
    builder.add(row)
    batch = builder.flush()
    assert batch is not None
    (one,) = Explainer(READING, (Length(),), LABELS).explain(batch)
    (step,) = one.steps
    found = {score.name: (score.value, [(asked.words, asked.drops) for asked in score.limits]) for score in step.scores}
    assert found["status"] == (404, [("at least 200", False), ("at most 299", True)])
    assert found["bytes"] == (None, [("at most 16777216", False), ("at least 1", False)])
    assert (one.verdict, step.end and step.end.reason) == ("dropped", "http_status")


def test_a_document_on_which_a_stage_breaks_fails_in_it_alone() -> None:
    broken, fine = explained(["de break", "en and some more"], Length(), Tongue())
    assert (broken.verdict, broken.end and broken.end.reason) == ("failed", "stage_error")
    assert broken.steps[2].scores[0].value == 2
    assert fine.verdict == "kept"


def test_stages_of_other_domains_say_so() -> None:
    batch = batch_of(["de x", "de x"], ["http://a.books.example/", "http://b.example/"])
    book, page = Explainer(READING, (Length(domains=("books",)),), LABELS).explain(batch)
    assert (book.verdict, page.verdict) == ("dropped", "kept")
    assert page.steps[1].skipped is not None
    assert page.steps[1].skipped.why == "it judges books only"


def test_a_model_still_to_be_fitted_leaves_its_languages_open() -> None:
    de, en = explained(["de x", "en x"], Tongue(), Length(), unfitted={"length_v1": frozenset({"de"})})
    assert (de.verdict, de.open_links, de.steps[2].scores) == ("open", ["length_v1"], ())
    assert de.steps[2].skipped is not None
    assert "model of de" in de.steps[2].skipped.why
    assert en.verdict == "dropped"


def test_a_percentile_stops_documents_once_a_run_has_measured_it() -> None:
    length = Length(min_chars=1, max_chars=BY_LANGUAGE)
    texts = ["de x", "de xxxx", "en xxxx"]
    assert [one.verdict for one in explained(texts, Tongue(), length)] == ["open"] * 3
    rows = [{"link": "length_v1", "check": 1, "end": "max", "group": "de", "step": 5}]
    found = explained(texts, Tongue(), length, cuts=pa.Table.from_pylist(rows, CUTS))
    assert [one.verdict for one in found] == ["kept", "dropped", "kept"]
    assert [one.steps[2].scores[0].limits[1].words for one in found] == [
        "at most 5 (percentile 50 by language)",
        "at most 5 (percentile 50 by language)",
        "no limit for en (percentile 50 by language)",
    ]
    assert found[1].end is not None
    assert found[1].end[:3] == ("length_v1:late", "long", 7.0)


def test_doc_ids_that_no_run_gave_decide_nothing() -> None:
    assert [one.verdict for one in explained(["a", "b"], Lucky())] == ["open", "open"]
    assert [one.verdict for one in explained(["a", "b"], Lucky(), has_doc_ids=True)] == ["kept", "dropped"]


texts = st.lists(
    st.none() | st.sampled_from(["de x", "en break", "", " ", "de long enough", "en", "fr and what follows it"]),
    min_size=1,
    max_size=12,
)


@given(texts, st.booleans(), st.integers(0, 12))
def test_the_end_is_that_of_the_chain_in_any_batch(drawn: list[str | None], is_tongue_first: bool, at: int) -> None:
    length = Length(min_chars={"language": {"de": 4}, "default": 10}, domains=("web",))
    chain: list[Any] = [Tongue(), length] if is_tongue_first else [length, Tongue()]
    batch = LABELS.with_domain(batch_of(drawn))
    for one in chain:
        batch = mark(one, batch)
    wanted = batch.select(["dropped_by", "reason", "value", "failed", "detail"]).to_pylist()
    explainer = Explainer(READING, tuple(chain), LABELS)
    whole = batch_of(drawn)
    found = [one for part in (whole.slice(0, at), whole.slice(at)) for one in explainer.explain(part)]
    assert len(found) == len(drawn)
    for ours, row in zip(found, wanted, strict=True):
        assert (ours.end._asdict() if ours.end else None) == (row if row["dropped_by"] else None)


def test_plain_values_have_a_prefix_of_the_text() -> None:
    (one,) = explained(["de x"], Tongue(), Length(domains=("books",)))
    found = one.to_json(2)
    assert found["stages"].pop(0)["name"] == "read"
    assert found == {
        "doc_id": 0, "url": None, "offset": 0, "language": "de", "domain": "web",
        "verdict": "kept", "end": None, "open": [], "text": "de",
        "stages": [
            {
                "name": "tongue_v1", "scores": {"words": 2}, "end": None, "skipped": None,
                "checks": [
                    {"reason": "no_words", "score": "words", "asks": "at least 1", "min": 1.0, "drops": False},
                ],
            },
            {"name": "length_v1", "scores": {}, "checks": [], "end": None, "skipped": "it judges books only"},
        ],
    }  # fmt: skip


def test_beam_is_not_imported() -> None:
    names = ", ".join(f"pipelines.inspection.{name}" for name in ("explain", "opening", "explain_tables"))
    code = f"import sys, {names}; sys.exit('apache_beam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
