from __future__ import annotations

import io

from rich.console import Console, RenderableType

from pipelines.inspection import score_tables
from pipelines.inspection.scores import Bin, Histogram
from pipelines.inspection.wording import Limit
from stages.checks import Check
from stages.limits import Bound
from stages.scores import Category, Count

WORDS = Count("words", "words")
FEW = Limit(Check("too_few", "words"), WORDS, "min", Bound(default=20))
HISTOGRAM = Histogram(
    "quality_v1",
    WORDS,
    "quality_v1.words",
    (FEW,),
    (Bin(7, None, 3, 3), Bin(20, None, 1_000, 0), Bin(112, None, 500, 0)),
)
NAMES = Histogram(
    "language_v1", Category("label"), "language_v1.label", (), (Bin(None, "\x1b[2Jen", 5, 0), Bin(None, None, 2, 1))
)


def printed(table: RenderableType, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def test_a_histogram_shows_bins_limits_and_what_is_beyond() -> None:
    lines = printed(score_tables.histogram_table(HISTOGRAM)).splitlines()
    assert lines[0].strip() == "quality_v1.words: words"
    assert [line.split()[0] for line in lines[2:5]] == ["7", "20", "112"]
    assert "◂ at least 20" in lines[3]
    assert lines[4].startswith("112 to 124")
    assert "too_few: at least 20; beyond it 3 of 1,503" in lines[-1]
    assert "50% 20" in lines[-2]


def test_it_is_ascii_where_it_has_to_be_and_fits() -> None:
    text = printed(score_tables.histogram_table(HISTOGRAM, unicode=False, width=80), 80)
    assert text.isascii()
    assert "< at least 20" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_many_bins_stand_together_and_none_is_lost() -> None:
    bins = tuple(Bin(10 * n, None, 1, 0) for n in range(100))
    found = Histogram("s_v1", WORDS, "s_v1.words", (), bins)
    lines = score_tables._together(bins, score_tables.MOST_LINES)
    assert len(lines) <= score_tables.MOST_LINES
    assert [one for line in lines for one in line] == list(bins)
    assert len(printed(score_tables.histogram_table(found)).splitlines()) < 50


def test_names_are_harmless_and_rare_ones_are_told_as_such() -> None:
    text = printed(score_tables.histogram_table(NAMES))
    assert "\x1b" not in text
    assert [line.split()[0] for line in text.splitlines()[2:4]] == ["en", "(others)"]


def test_the_overview_has_a_line_for_each_score() -> None:
    empty = Histogram("quality_v1", Count("lines"), "quality_v1.lines")
    text = printed(score_tables.scores_table("Scores", [HISTOGRAM, empty, NAMES]))
    words = next(line.split() for line in text.splitlines() if line.startswith("  words"))
    assert words[:3] == ["words", "1,503", "3"]
    assert words[-3:] == ["at", "least", "20"]
    assert "no document has this score" in printed(score_tables.histogram_table(empty))
    assert all(
        len(line) <= 80 for line in printed(score_tables.scores_table("Scores", [NAMES], width=80), 80).splitlines()
    )
