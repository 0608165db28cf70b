from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from pipelines.inspection import terminal
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
        **{Fate("gopher_quality_v1", f"long_reason_{n}", False, "en", "web"): 10 + n for n in range(12)},
    }
    funnel = report_of(counts, ["read", "gopher_quality_v1", "near_dedup_v1"]).stages
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
