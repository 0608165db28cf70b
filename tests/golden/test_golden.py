from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden import golden as module
from tests.golden.golden import Case, Golden, Section, complaint, differences, is_same, load, plain, save

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
CASES = st.dictionaries(st.text(max_size=6), st.builds(Case, st.text(max_size=4), JSON), max_size=3)
SECTIONS = st.dictionaries(st.text(max_size=6), st.builds(Section, JSON, CASES), min_size=1, max_size=3)


def golden(output: Any = 1, name: str = "thing_v1", settings: Any = None, input: str = "i", **more: Any) -> Golden:
    return Golden(name, {"s": Section(settings, {"c": Case(input, output)})}, **more)


@settings(max_examples=60, deadline=None)
@given(SECTIONS, st.dictionaries(st.text(max_size=4), JSON, max_size=2), st.lists(st.text(max_size=4), max_size=2))
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, sections: dict[str, Section], versions: dict[str, Any], notes: list[str]
) -> None:
    path = tmp_path_factory.mktemp("golden") / "deeper" / "g.json"
    made = Golden("a_v1", sections, versions, tuple(notes))
    save(made, path)
    assert load(path) == made
    assert differences(load(path), made) == []


def test_a_case_with_many_values_has_a_line_for_each(tmp_path: Path) -> None:
    save(golden({f"file {n}": "0" * 64 for n in range(9)}), tmp_path / "g.json")
    assert sum("file" in line for line in (tmp_path / "g.json").read_text().splitlines()) == 9


def test_behaviour_is_other_output_for_the_same_input_settings_and_version() -> None:
    was = golden(1)
    for now, is_behaviour in (
        (golden(2), True),
        (golden(2, input="j"), False),
        (golden(2, settings={"a": 1}), False),
        (golden(2, name="thing_v2"), False),
        (golden(2, versions={"pass": 2}), False),
    ):
        (found,) = differences(was, now)
        assert (found.case, found.is_behaviour) == ("c", is_behaviour)


def test_cases_that_come_or_go_are_named() -> None:
    one, other = golden(), Golden("thing_v1", {"t": Section(None, {"d": Case("i", 1)})})
    assert [str(found) for found in differences(one, other)] == ["s / c: gone", "t / d: new"]


def test_a_difference_names_each_value_that_changed() -> None:
    was = golden({"value": 1.5, "reason": "few", "rows": [1, 2], "text": "same"})
    now = golden({"value": 1.5, "reason": None, "rows": [1, 3], "text": "same", "new": "x" * 300})
    (found,) = differences(was, now)
    lines = str(found).splitlines()
    assert lines[:3] == ["s / c", '    reason: "few" -> null', "    rows[1]: 2 -> 3"]
    assert lines[3].startswith('    new: null -> "xxx')
    assert len(lines[3]) < 250


@pytest.mark.parametrize(
    ("was", "now", "tolerance", "same"),
    [
        (0.5, 0.5001, 0.0, False),
        (0.5, 0.5001, 1.5e-4, True),
        (0.5, 0.5002, 1.5e-4, False),
        ([{"a": 0.1}], [{"a": 0.1001}], 1.5e-4, True),
        ({"a": 1}, {"a": 1, "b": None}, 1.0, False),
        (1, True, 1.0, False),
        (1, 2, 10.0, False),
        ("a", "b", 10.0, False),
        ([1], [1, 1], 1.0, False),
    ],
)
def test_numbers_may_differ_within_the_tolerance_and_nothing_else(
    was: Any, now: Any, tolerance: float, same: bool
) -> None:
    assert is_same(was, now, tolerance) is same


@given(JSON)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert is_same(value, value, 0.0)


def test_values_of_tables_are_plain() -> None:
    assert plain(b"\x01\xff") == "01ff"
    assert plain(bytes(100)) == {"bytes": 100, "sha256": plain(bytes(100))["sha256"]}
    assert plain("x" * 301)["chars"] == 301
    assert plain("x" * 300) == "x" * 300
    assert plain(datetime(2024, 5, 6, tzinfo=UTC)) == "2024-05-06T00:00:00+00:00"


def test_the_complaint_says_what_changed_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    was = golden(1)
    text = complaint(differences(was, golden(2)), was, "raise it")
    assert "thing_v1 is not what its golden says in 1 cases:\n  s / c\n    : 1 -> 2" in text
    assert text.endswith("If the change is meant, raise it, then run: python -m tests.golden.regenerate")
    monkeypatch.setattr(module, "_ENVIRONMENT", tmp_path / "environment.json")
    module.save_environment()
    assert module.other_versions() == []
    recorded = (tmp_path / "environment.json").read_text()
    (tmp_path / "environment.json").write_text(recorded.replace('"apache-beam": "', '"apache-beam": "0.'))
    assert "computed with other versions: apache-beam 0.2" in complaint(differences(was, golden(2)), was, "raise it")
