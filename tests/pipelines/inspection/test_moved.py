from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console

from pipelines.inspection.moved import KEPT, Fate, Move, fates, moves, table

EN, DE = ("en", "web"), ("de", "web")
BEFORE = Counter({Fate(None, None, *EN): 10, Fate(None, None, *DE): 4, Fate("a_v1", "short", *EN): 3})
AFTER = Counter({Fate(None, None, *EN): 7, Fate(None, None, *DE): 4, Fate("a_v1", "short", *EN): 6})


def test_moves_are_the_fates_whose_count_differs() -> None:
    assert moves(BEFORE, AFTER) == [Move(KEPT, "", "en", "web", 10, 7), Move("a_v1", "short", "en", "web", 3, 6)]
    assert moves(BEFORE, BEFORE) == []


def shown(before: Any, after: Any) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(table(before, after))
    return capture.get()


def test_the_table_sums_languages_and_shows_what_moved_alone() -> None:
    lines = [line.split() for line in shown(BEFORE, AFTER).splitlines() if line.strip()]
    assert ["kept", "14", "11", "-3"] in lines
    assert ["a_v1/short", "3", "6", "+3"] in lines
    assert "nothing moved" in shown(BEFORE, BEFORE)


def test_fates_are_those_of_the_verdicts_without_duplicates(made: Any) -> None:
    duplicates = {"exact_dedup_v1", "near_dedup_v1", "tokenizer"}
    expected: Counter[Fate] = Counter()
    for row in made.verdicts():
        late = row["dropped_by"] not in duplicates
        link = (row["dropped_by"], row["reason"]) if late else (None, None)
        expected[Fate(*link, row["language"], row["domain"])] += 1
    assert fates(made.run) == expected
