from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from pipelines.cost_files import Cost
from pipelines.inspection import terminal
from pipelines.inspection.costs import PassCosts, Slowest, StageCosts
from pipelines.inspection.funnel import Fate, report_of


def printed(table: RenderableType, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


@given(st.floats(-1, 2), st.integers(1, 60))
def test_a_bar_has_its_cells_and_grows_with_its_share(share: float, cells: int) -> None:
    for unicode in (True, False):
        drawn = terminal.bar(share, cells, unicode=unicode)
        assert len(drawn) == cells
        assert (drawn.strip(" .") == "") == (share <= 0)
    assert terminal.bar(1.0, cells) == "█" * cells
    assert terminal.bar(share, cells, unicode=False).isascii()


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_has_no_shorter_bar(one: float, other: float) -> None:
    def eighths(share: float) -> int:
        return sum(" ▏▎▍▌▋▊▉█".index(cell) for cell in terminal.bar(share))

    low, high = sorted((one, other))
    assert eighths(low) <= eighths(high)


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b[]m\x07\x9b\u202e\u2066\r\n\t"), max_size=60))
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    shown = terminal.clean(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert terminal.clean(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 中文, עברית", "plain, 中文, עברית"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]8;;http://evil/\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#payload\x1b\\after", "after"),
        ("\x9b2Jgone", "2Jgone"),
        ("over\rwritten", "overwritten"),
        ("two\r\nlines", "two\nlines"),
        ("abc\x08\x08\x08xyz", "abcxyz"),
        ("user\u202egpj.exe", "usergpj.exe"),
        ("a\x1b", "a"),
    ],
)
def test_what_becomes_of_escape_sequences(text: str, shown: str) -> None:
    assert terminal.clean(text) == shown


def test_a_funnel_shows_every_number_and_reason() -> None:
    counts = {
        Fate("read", "truncated", True, "und", "web"): 3,
        Fate("quality_v1", "short_words", False, "en", "web"): 1_234,
        Fate("quality_v1", "[bold]odd[/bold]", False, "en", "web"): 5,
        Fate(None, None, False, "en", "web"): 7_000,
    }
    text = printed(terminal.funnel_table("All", report_of(counts, ["read", "quality_v1"]).stages))
    assert "8,242" in text
    assert "8,239" in text
    assert "7,000" in text
    assert "failed: truncated 3" in text
    assert "short_words 1,234, [bold]odd[/bold] 5" in text


def test_a_narrow_terminal_has_every_reason_whole_below() -> None:
    counts = {
        Fate("read", "truncated", True, "und", "web"): 3,
        **{Fate("gopher_quality_v2", f"long_reason_{n}", False, "en", "web"): 10 + n for n in range(12)},
    }
    funnel = report_of(counts, ["read", "gopher_quality_v2", "near_dedup_v1"]).stages
    text = printed(terminal.funnel_table("All", funnel, width=80), width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "failed: truncated 3" in text
    assert [n for n in range(12) if f"long_reason_{n} {10 + n}" not in " ".join(text.split())] == []


def test_an_empty_run_has_a_table_too() -> None:
    assert "read" in printed(terminal.funnel_table("All", report_of({}, ["read"]).stages))
    assert "" in printed(terminal.tokens_table("Tokens", {}))


def test_groups_are_listed_by_size() -> None:
    counts = {Fate(None, None, False, "de", "web"): 1, Fate(None, None, False, "en", "web"): 5}
    lines = printed(terminal.groups_table("By language", report_of(counts, ["read"]).languages)).splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("de", "en"))] == ["en", "de"]


def cost_of(name: str, seconds: float, rows: int, size: int, *, is_lower_bound: bool = False) -> StageCosts:
    ns = int(seconds * 1e9)
    return StageCosts(
        name, Cost(ns, ns * is_lower_bound, 2 * ns, 1, rows, rows, size), 3, Slowest("00001-abcdef12", seconds)
    )


COSTS = [
    PassCosts(
        "judge",
        (cost_of("read", 30.0, 60_000, 90_000_000), cost_of("gopher_repetition_v2", 1_290.0, 30_000, 45_000_000)),
        3, 410.5, Slowest("00001-abcdef12", 1_234.5), 812_000_000, True, 700.25,
    ),
    PassCosts(
        "near",
        (cost_of("near", 80.0, 0, 0, is_lower_bound=True),),
        1, 80.0, Slowest("all", 80.0), 400_000_000, False, None,
    ),
]  # fmt: skip


def test_costs_show_shares_and_speeds_by_stage() -> None:
    for unicode in (True, False):
        lines = printed(terminal.costs_table("Where", COSTS, unicode=unicode)).splitlines()
        cells = {line.split()[0]: [cell for cell in line.split() if cell[0].isdecimal()] for line in lines[2:]}
        assert cells == {
            "judge": ["1,320.00", "94.3%", "2,640.00"],
            "read": ["30.00", "2.1%", "60.00", "60,000", "2,000", "90.0", "3.0"],
            "gopher_repetition_v2": ["1,290.00", "92.1%", "2,580.00", "30,000", "23", "45.0", "0.0"],
            # A pass of one stage is one line, without rows that nobody counted.
            "near": ["80.00", "5.7%", "160.00"],
        }
        assert [line.split()[0] for line in lines if ("≥ " if unicode else ">= ") in line] == ["near"]
        assert unicode or all(line.isascii() for line in lines)


def test_costs_fit_a_narrow_terminal() -> None:
    lines = printed(terminal.costs_table("Where", COSTS, width=80), width=80).splitlines()
    assert all(len(line) <= 80 and "…" not in line for line in lines)
    assert lines[1].split() == ["CPU-s", "share", "rows/CPU-s", "MB/CPU-s"]
    text = printed(terminal.units_table("Units", COSTS), width=80)
    assert all(len(line) <= 80 and "…" not in line for line in text.splitlines())


def test_units_show_the_slowest_and_whose_peak_it_is() -> None:
    lines = printed(terminal.units_table("Units", COSTS)).splitlines()
    assert lines[2].split() == ["judge", "700.2", "3", "410.50", "1,234.50", "00001-abcdef12", "812"]
    assert lines[3].split() == ["near", "1", "80.00", "80.00", "all", "≤", "400"]
    plain = printed(terminal.units_table("Units", COSTS, unicode=False))
    assert plain.isascii()
    assert "<= 400" in plain


def test_a_run_that_took_no_time_has_a_table_too() -> None:
    idle = [PassCosts("judge", (cost_of("read", 0.0, 5, 0),), 1, 0.0, Slowest("a", 0.0), 0, True, 0.0)]
    assert "0.0%" in printed(terminal.costs_table("Where", idle))


def test_an_excerpt_is_cut_and_indented() -> None:
    assert terminal.excerpt("a\n\n\x1b[1mb\n", 100).plain == "    a\n    b"
    assert terminal.excerpt("x" * 50, 10).plain == "    " + "x" * 10 + " …"


def test_losses_have_a_column_per_domain() -> None:
    text = printed(terminal.loss_table("Loss", [("step 1", {"web": 8.25}), ("end", {"web": 4.0, "code": 3.5})]))
    assert text.splitlines()[1].split() == ["code", "web"]
    assert text.splitlines()[2].split() == ["step", "1", "8.250"]


def test_a_pipe_has_room_for_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert terminal.make_console().width == terminal.PLAIN_WIDTH
