from __future__ import annotations

import io

from rich.console import Console

from pipelines.inspection import explain_tables
from pipelines.inspection.explain import NO_TEXT, Asked, End, Explained, Scored, Skip, Step
from pipelines.inspection.wording import Limit
from stages.checks import Check
from stages.limits import Bound
from stages.scores import Count

WORDS = Count("words")
FEW = Limit(Check("too_few", "words"), WORDS, "min", Bound(default=20))
DROP = End("quality_v1", "too_few", 3.0, failed=False, detail=None)


def step(link: str, words: int | None, end: End | None = None, skipped: Skip | None = None) -> Step:
    asked = Asked(FEW, "at least 20", 20.0, end is not None)
    return Step(link, () if skipped else (Scored("words", words, (asked,)),), end, skipped)


def document(*steps: Step, end: End | None = None, url: str = "http://a.example/") -> Explained:
    return Explained(7, url, 40, "en", "web", "some \x1b[2Jtext", steps, end)


def printed(one: Explained, *, unicode: bool = True, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(explain_tables.document(one, 100, unicode=unicode))
    return out.getvalue()


def test_the_first_stop_is_told_from_those_after_it() -> None:
    text = printed(document(step("quality_v1", 3, DROP), step("again_v1", 3, DROP), end=DROP))
    assert "dropped by quality_v1: too_few at 3" in text
    assert text.index("stops here: too_few") < text.index("would stop here too: too_few")
    assert text.count("\u2717 too_few") == 2
    assert "\x1b" not in text


def test_a_stop_of_no_stage_has_a_line_of_its_own() -> None:
    late = End("quality_v1:late", "too_few", 3.0, failed=False, detail=None)
    lines = [line.strip() for line in printed(document(step("quality_v1", 30), end=late)).splitlines()]
    assert any(line.split() == ["quality_v1:late", "stops", "here:", "too_few"] for line in lines)


def test_what_only_a_run_can_tell_is_not_called_kept() -> None:
    one = document(step("a_v1", None, skipped=Skip("its model is missing", is_open=True)), step("b_v1", 30))
    assert "not stopped, as far as can be told without a run of a_v1" in printed(one)
    text = printed(document(step("a_v1", None, skipped=NO_TEXT)))
    assert "kept by the chain" in text
    assert NO_TEXT.why in text


def test_it_is_ascii_where_it_has_to_be() -> None:
    one = document(step("quality_v1", None), step("b_v1", 3, DROP), end=DROP, url="http://a.example/\x1b]0;x\x07")
    text = printed(one, unicode=False, width=80)
    assert text.isascii()
    assert "x too_few" in text
    assert "\x1b" not in text


def test_the_summary_names_what_there_is() -> None:
    assert explain_tables.summary({"kept": 1}).plain.startswith("1 record: 1 kept by the chain. ")
    said = explain_tables.summary({"dropped": 2, "failed": 1, "open": 1000}).plain
    assert said.startswith("1,003 records: 2 dropped, 1 failed, 1,000 not to be told without a run. ")
    assert explain_tables.summary({}).plain.startswith("0 records: none. ")
