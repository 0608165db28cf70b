from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pydantic
import pytest
import zstandard

from stages.checks import KEPT
from stages.judges.gopher_quality import GopherQuality
from tests.stages.support import stage_of

Batches = Callable[..., pa.RecordBatch]

PROSE = "It was the best of times and it was the worst of times, and they have to be with us. "
GOOD = PROSE * 4


def reason(documents: Batches, text: str, language: str = "en", **parameters: Any) -> tuple[str | None, float]:
    stage = stage_of(GopherQuality, **parameters)
    verdict = stage.judge(documents(1, text=[text], language=[language]))
    code = int(verdict.codes[0])
    assert verdict.value is not None
    return (None if code == KEPT else stage.reasons[code]), float(verdict.value[0])


@pytest.mark.parametrize(
    ("text", "why", "value"),
    [
        ("", "too_few_words", 0),
        ("the of and " * 10, "too_few_words", 30),
        ("the of and " * 40_000, "too_many_words", 120_000),
        ("a of " * 40, "short_words", 1.5),
        ("internationalisations the of " * 30, None, 0),
        ("internationalisations electroencephalogram the " * 20, "long_words", 14.6667),
        # Signs count as characters of the words they stand between, and split what they stand in.
        ("'to' (of) " * 40, None, 0),
        ("http://www.example.com/the/page-of-it?and=them " * 20, None, 0),
        (GOOD + "#tag " * 20, "hash_symbols", 0.2),
        (GOOD + "so... " * 20, "ellipses", 0.2),
        ("\n".join(["• the best of times"] * 20), "bullet_lines", 1.0),
        ("\n".join(["- the best of times"] * 18 + ["the best of times"] * 2), None, 0),
        ("\n".join(["the best of many good times ..."] * 3 + ["the best of the many good times, again"] * 7), None, 0),
        ("\n".join(["they have to be the best of times, and long ones …"] * 10), "ellipsis_lines", 1.0),
        (GOOD + "1234 " * 30, "few_alphabetic_words", 0.7273),
        # A price, a date or a row of dashes counts once, a word with a number in it not at all.
        (GOOD + "$2,184.50 " * 20, None, 0),
        (GOOD + "--- | 1-2-3 " * 7, "few_alphabetic_words", 0.7921),
        (GOOD + "b2b " * 40, None, 0),
        ("word salad green ideas sleep furiously " * 10, "few_stop_words", 0),
        (GOOD, None, 0),
    ],
)
def test_each_rule_drops_for_its_own_reason(documents: Batches, text: str, why: str | None, value: float) -> None:
    found, measure = reason(documents, text)
    assert found == why
    if why:
        assert measure == pytest.approx(value)


def test_every_score_is_measured_whatever_dropped_the_document(documents: Batches) -> None:
    text = "#aa bb... cc\n• dd ee…\nff gg the"
    batch = documents(2, text=[text, "今天天气很好，我们去公园散步。"], language=["en", "zh"])
    columns = stage_of(GopherQuality).judge(batch).columns
    expected = {
        "words": 8,
        "mean_word_chars": len("".join(text.split())) / 8,
        "hashes_per_word": 1 / 8,
        "ellipses_per_word": 2 / 8,
        "bullet_lines": 1 / 3,
        "ellipsis_lines": 1 / 3,
        "stop_words": 1,
    }
    found = {name.removeprefix("gopher_quality_v2."): column.to_pylist() for name, column in columns.items()}
    assert set(expected) <= set(found)
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value, abs=5e-5), name
    assert found["mean_word_chars"][1] is None
    assert found["stop_words"][1] is None
    assert found["words"][1] > 0


def test_a_limit_may_be_one_of_a_language_or_domain(documents: Batches) -> None:
    batch = documents(4, text=[GOOD] * 4, language=["en", "en", "de", "de"], domain=["web", "code", "web", "code"])
    for limit, expected in (
        ({"language": {"en": 1_000}, "default": 1}, [0, 0, KEPT, KEPT]),
        ({"domain": {"code": 1_000}}, [KEPT, 0, KEPT, 0]),
    ):
        stage = stage_of(GopherQuality, min_words=limit, min_stop_words=0)
        assert stage.judge(batch).codes.tolist() == expected


@pytest.mark.parametrize("rule", ["min_words", "max_words"])
def test_limits_themselves_are_kept(documents: Batches, rule: str) -> None:
    count = len(GOOD.split())
    parameters: dict[str, Any] = {"min_words": 1, rule: count}
    assert reason(documents, GOOD, **parameters)[0] is None
    parameters[rule] += 1 if rule == "min_words" else -1
    assert reason(documents, GOOD, **parameters)[0] is not None


def test_stop_words_are_asked_only_where_the_language_has_a_list(documents: Batches) -> None:
    salad = "word salad green ideas sleep furiously " * 10
    assert reason(documents, salad, "xx")[0] is None
    assert reason(documents, salad, "und")[0] is None
    assert reason(documents, salad, "xx", stop_words={"xx": ("salad", "ideas")})[0] is None
    assert reason(documents, salad, "xx", stop_words={"xx": ("the", "ideas")}) == ("few_stop_words", 1.0)
    assert reason(documents, salad, "en", stop_words={"en": ()})[0] is None
    assert reason(documents, salad, "xx", stop_words={"xx": ("SALAD", "Ideas")})[0] is None


def test_a_script_without_spaces_is_not_judged_by_its_word_length(documents: Batches) -> None:
    assert reason(documents, "今天天气很好，我们去公园散步。" * 5, "zh")[0] is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"min_wrods": 3},
        {"min_words": -1},
        {"min_words": {"language": {"en": -1}}},
        {"min_words": {"language": {}}},
        {"min_words": {"percentile": 101}},
        {"min_words": float("nan")},
        {"max_words": {"domain": {"web": float("nan")}}},
        {"max_bullet_lines": 1.5},
        {"stop_words": {"fr": ("le", "l'homme")}},
        {"stop_words": {"fr": ("...",)}},
    ],
)
def test_refuses_unknown_and_impossible_parameters(parameters: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        stage_of(GopherQuality, **parameters)


@pytest.mark.shared_data
def test_encyclopaedic_paragraphs_in_twelve_languages_pass(documents: Batches, shared_data: Path) -> None:
    with zstandard.open(shared_data / "text" / "wiki" / "xquad_contexts.jsonl.zst", "rb") as file:
        rows = [json.loads(line) for line in io.TextIOWrapper(file, "utf-8")]
    rows.sort(key=lambda row: (row["lang"], row["par"]))
    # A paragraph may be under 50 words, three of one article are not.
    groups = [rows[i : i + 3] for i in range(0, len(rows), 3)]
    texts = ["\n\n".join(row["text"] for row in group) for group in groups]
    languages = [group[0]["lang"] for group in groups]
    codes = stage_of(GopherQuality).judge(documents(len(texts), text=texts, language=languages)).codes
    assert (codes == KEPT).all()
