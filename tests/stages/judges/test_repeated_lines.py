from __future__ import annotations

from typing import cast

import pytest
from pydantic import ValidationError

from stages.base import Stage
from stages.judges.repeated_lines import RepeatedLines
from stages.marking import mark
from tests.stages.editors import documents

MENU = "Home | Products | About us | Contact"
FIRST = "A first paragraph of some length."
TEXT = f"{MENU}\n{FIRST}\n}}\n\n{MENU}\n\nMore of it.\n}}\n\n{FIRST}\n}}\n"


def test_repeats_go_once_counted_by_kind_and_short_lines_stay() -> None:
    (row,) = mark(cast(Stage, RepeatedLines()), documents([TEXT])).to_pylist()
    assert row["text"] == f"{MENU}\n{FIRST}\n}}\n\nMore of it.\n}}\n\n}}\n"
    assert row["repeated_lines_v1.removed_chars.repeated_line"] == len(TEXT) - len(row["text"])
    assert row["repeated_lines_v1.removed_chars.repeated_paragraph"] == 0
    assert row["repeated_lines_v1.inserted_chars.repeated_line"] == 0
    assert row["dropped_by"] is None


def test_lines_and_paragraphs_are_a_recipes_choice() -> None:
    text = f"{MENU}\n{MENU}\n\nA paragraph that comes twice.\n}}\n\nA paragraph that comes twice.\n}}\n"
    one = {"lines": cast(Stage, RepeatedLines(paragraphs=False)), "paragraphs": cast(Stage, RepeatedLines(lines=False))}
    left = {name: mark(stage, documents([text])).to_pylist()[0]["text"] for name, stage in one.items()}
    assert left["lines"] == f"{MENU}\n\nA paragraph that comes twice.\n}}\n\n}}\n"
    assert left["paragraphs"] == f"{MENU}\n{MENU}\n\nA paragraph that comes twice.\n}}\n"
    with pytest.raises(ValidationError, match="nothing to remove"):
        RepeatedLines(lines=False, paragraphs=False)
    with pytest.raises(ValidationError):
        RepeatedLines(min_chars=0)
