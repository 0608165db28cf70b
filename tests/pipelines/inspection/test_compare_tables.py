from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from pipelines.inspection.compare import Comparison, End, Move
from pipelines.inspection.compare_tables import comparison_tables
from pipelines.inspection.funnel import Fate, report_of

WEB = {"language": "en", "domain": "web"}


def printed(found: Comparison, *, unicode: bool = True, width: int = 140) -> str:
    out = io.StringIO()
    for table in comparison_tables(found, ("old", "new"), unicode=unicode):
        Console(file=out, width=width).print(table)
    return out.getvalue()


def made_up(**settings: Any) -> Comparison:
    kept, few = Fate(None, None, False, **WEB), Fate("s_v1", "few", False, **WEB)
    reports = [report_of(counts, ["read", "s_v1"]) for counts in ({kept: 9, few: 1}, {kept: 4, few: 6})]
    move = Move(End(None, None, False), End("s_v1", "few", False), **WEB)
    values = {"changed": (("s_v1.min_words", 5.0, 50.0),), "counts_only": None, "moved": {move: 5}, "same": 5}
    return Comparison(before=reports[0], after=reports[1], **(values | settings))


def test_tables_say_what_changed_and_what_moved() -> None:
    text = printed(made_up())
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert rows["s_v1.min_words"] == ["5.0", "50.0"]
    assert rows["few"] == ["1", "6", "+5"]
    assert "kept → s_v1/few" in text
    assert "5 of 10 records ended otherwise" in text
    plain = printed(made_up(), unicode=False, width=80)
    assert plain.isascii()
    assert "kept -> s_v1/few" in plain


def test_tables_say_why_only_counts_are_compared() -> None:
    text = printed(made_up(counts_only="one run reads 1 sources, the other 2", moved={}, same=0, changed=()))
    assert "Only counts are compared: one run reads 1 sources, the other 2." in text
    assert "The recipes say the same." in text
