from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

from pipelines.inspection.wording import limits_of
from pipelines.late import CUTS
from stages.base import early_rules, stage
from stages.checks import ANY, Check
from stages.limits import Limit
from stages.scores import Category, Count, Log10, Ratio


@stage
class Worded:
    name: ClassVar[str] = "worded_v1"
    scores = (Count("words"), Ratio("share"), Log10("perplexity"), Category("label"), Category("listed"))
    checks = (
        Check("few", "words", min="min_words", max=1000),
        Check("much", "share", max="max_share", null="drop"),
        Check("chaotic", "perplexity", min="min_perplexity", max="max_perplexity"),
        Check("unwanted", "label", allowed="keep", forbidden="bad"),
        Check("on_a_list", "listed", forbidden=ANY),
    )
    min_words: Limit = 5
    max_share: Limit = 0.25
    min_perplexity: Limit | None = None
    max_perplexity: Limit | None = None
    keep: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()

    def measure(self, batch: pa.RecordBatch) -> dict[str, Any]:
        raise NotImplementedError


def words(cuts: pa.Table | None = None, **parameters: Any) -> dict[tuple[str, str | None], str]:
    found = limits_of(Worded(**parameters), cuts)
    return {(one.check.reason, one.end): one.words() for one in found}


def cut(end: str, group: str | None, step: int) -> dict[str, Any]:
    return {"link": "worded_v1", "check": 2, "end": end, "group": group, "step": step}


def test_every_limit_is_said_and_nothing_else() -> None:
    assert words() == {
        ("few", "min"): "at least 5",
        ("few", "max"): "at most 1000",
        ("much", "max"): "at most 0.25",
        ("much", None): "required",
        ("on_a_list", None): "must have none",
    }
    assert words(keep=("en", "de"), bad=("xx",))["unwanted", None] == "one of en, de, not xx"
    assert words(keep=tuple("abcdefghij"))["unwanted", None] == "one of a, b, c, d, e, f, g, h and 2 more"


def test_a_limit_by_group_is_said_for_all_and_for_one() -> None:
    (limit, *_) = limits_of(Worded(min_words={"language": {"th": 0, "de": 40}, "default": 50}), None)
    assert limit.words() == "at least 40 (de), 0 (th), 50 otherwise"
    assert limit.words_for({"language": "de", "domain": "web"}) == "at least 40 for de"
    assert limit.words_for({"language": "fr", "domain": "web"}) == "at least 50 for fr"
    assert limit.number_for({"language": "th", "domain": "web"}) == 0.0
    (limit, *_) = limits_of(Worded(min_words={"domain": {"web": 7}}), None)
    assert limit.words_for({"language": "de", "domain": "books"}) == "no limit for books"
    assert limit.number_for({"language": "de", "domain": "books"}) is None


def test_a_percentile_is_said_with_its_number_once_it_is_measured() -> None:
    percentile = {"percentile": 97, "by": "language"}
    (unknown,) = [one for one in limits_of(Worded(max_perplexity=percentile), None) if one.check.reason == "chaotic"]
    assert unknown.words() == "at most percentile 97 by language: measured by a run"
    assert unknown.words_for({"language": "de", "domain": ""}) == unknown.words()
    assert unknown.is_unknown
    cuts = pa.Table.from_pylist([cut("max", "en", 20_000), cut("max", "de", 19_153)], CUTS)
    (known,) = [one for one in limits_of(Worded(max_perplexity=percentile), cuts) if one.check.reason == "chaotic"]
    assert known.words() == "at most 82.28108 (de), 100 (en) (percentile 97 by language)"
    assert known.words_for({"language": "de", "domain": ""}) == "at most 82.28108 (percentile 97 by language)"
    assert known.words_for({"language": "fr", "domain": ""}) == "no limit for fr (percentile 97 by language)"
    assert not known.is_unknown


def test_one_end_may_be_given_and_the_other_measured() -> None:
    cuts = pa.Table.from_pylist([cut("max", None, 30_000)], CUTS)
    found = words(cuts, min_perplexity=10, max_perplexity={"percentile": 99, "of": ["a.txt"]})
    assert found["chaotic", "min"] == "at least 10"
    assert found["chaotic", "max"] == "at most 1000 (percentile 99 of reference text)"


@pytest.mark.parametrize(("value", "drops"), [(4, True), (5, False), (1000, False), (1001, True), (None, False)])
def test_limits_one_by_one_drop_what_their_check_drops(value: int | None, drops: bool) -> None:
    one = Worded()
    column = pa.array([value], pa.int64())
    apart = [limit.rule().hits(column, {})[0] for limit in limits_of(one, None) if limit.check.reason == "few"]
    assert len(apart) == 2
    assert any(apart) == drops == early_rules(one)[0].hits(column, {})[0]


def test_as_plain_values() -> None:
    cuts = pa.Table.from_pylist([cut("max", "en", 20_000)], CUTS)
    limits = limits_of(Worded(max_perplexity={"percentile": 97, "by": "language"}, keep=("en",)), cuts)
    assert [one.to_json() for one in limits] == [
        {"reason": "few", "end": "min", "limit": 5.0},
        {"reason": "few", "end": "max", "limit": 1000.0},
        {"reason": "much", "end": "max", "limit": 0.25},
        {"reason": "much", "null": "drop"},
        {
            "reason": "chaotic", "end": "max", "limit": None, "limit_by_language": {"en": 100.0},
            "percentile": 97.0, "by": "language", "is_measured": True,
        },
        {"reason": "unwanted", "allowed": ["en"]},
        {"reason": "on_a_list", "forbidden": ["*"]},
    ]  # fmt: skip
