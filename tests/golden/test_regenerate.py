from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import golden as golden_module
from tests.golden import reader_goldens, recipe_goldens, regenerate, stage_goldens
from tests.golden.golden import Case, Golden, Section, load, save


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of goldens in place of the real one, with one stage recorded."""
    monkeypatch.setattr(regenerate, "FOLDER", tmp_path)
    monkeypatch.setattr(golden_module, "_ENVIRONMENT", tmp_path / "environment.json")
    golden_module.save_environment()
    for module in (reader_goldens, recipe_goldens):
        monkeypatch.setattr(module, "compute_all", dict)
    save(made(1), tmp_path / "stages" / "thing_v1.json")
    return tmp_path


def made(output: Any, version: int = 1, input: str = "i", **more: Any) -> Golden:
    return Golden(f"thing_v{version}", {"s": Section({}, {"c": Case(input, output)})}, **more)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden | None, *arguments: str) -> int:
    now = {folder / "stages" / f"{golden.name}.json": golden} if golden else {}
    monkeypatch.setattr(stage_goldens, "compute_all", lambda: now)
    return regenerate.main(arguments)


def recorded(folder: Path) -> dict[str, Golden]:
    return {path.stem: load(path) for path in folder.glob("stages/*.json")}


def test_nothing_changes_where_nothing_changed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(folder, monkeypatch, made(1)) == 0
    assert capsys.readouterr().out == "0 of 1 goldens changed\n"


def test_another_output_under_the_same_version_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(folder, monkeypatch, made(2)) == 1
    out = capsys.readouterr().out
    assert "s / c\n    : 1 -> 2" in out
    assert "Nothing is written: outputs changed under the same version of thing_v1." in out
    assert recorded(folder) == {"thing_v1": made(1)}


def test_a_reason_lets_the_version_stay_and_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(folder, monkeypatch, made(2), "--same-version", "a misspelt detail") == 0
    assert run(folder, monkeypatch, made(3), "--same-version", "another") == 0
    assert recorded(folder) == {"thing_v1": made(3, same_version=("a misspelt detail", "another"))}
    assert run(folder, monkeypatch, made(3, input="j"), "--same-version", "not needed") == 0
    assert recorded(folder)["thing_v1"].same_version == ("a misspelt detail", "another")


def test_another_version_takes_the_place_of_the_one_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(folder, monkeypatch, made(2, version=2)) == 0
    assert "thing_v2 (was thing_v1): 1 cases differ\n  s / c\n    : 1 -> 2" in capsys.readouterr().out
    assert recorded(folder) == {"thing_v2": made(2, version=2)}


def test_other_input_may_have_other_output(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(folder, monkeypatch, made(2, input="j")) == 0
    assert "(the input changed)" in capsys.readouterr().out
    assert recorded(folder) == {"thing_v1": made(2, input="j")}


def test_the_golden_of_a_stage_that_is_gone_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(folder, monkeypatch, None) == 0
    assert recorded(folder) == {}


def test_the_versions_of_libraries_are_recorded_when_something_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = folder / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"numpy": "0"}))
    assert run(folder, monkeypatch, made(1)) == 0
    assert golden_module.other_versions()
    assert run(folder, monkeypatch, made(2)) == 1
    assert "computed with other versions: numpy 0 ->" in capsys.readouterr().out
    assert run(folder, monkeypatch, made(2, version=2)) == 0
    assert golden_module.other_versions() == []
