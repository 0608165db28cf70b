from __future__ import annotations

import json

import pytest

from trainer.calc.show import Table, show, tokens_and_parameters


@pytest.mark.parametrize(
    ("count", "text"), [(29.4e9, "29.4 B"), (3.5e12, "3.5 T"), (1_060_000, "1.06 M"), (12_345, "12.3 k"), (7, "7")]
)
def test_counts_have_three_digits_and_a_unit(count: float, text: str) -> None:
    assert tokens_and_parameters(count) == text


def test_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("GB", ("what", "GB"))
    table.add("weights", 350.0)
    show({"weights": 350.0}, table, as_json=True, title="title")
    assert json.loads(capsys.readouterr().out) == {"weights": 350.0}
    show({}, table, as_json=False, title="title", note="a note")
    out = capsys.readouterr().out
    assert all(text in out for text in ("title", "weights", "350", "a note"))
