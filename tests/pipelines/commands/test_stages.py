from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from pipelines import cli
from pipelines.commands.stages import describe
from stages import base, registry
from stages.base import reasons_of
from stages.judges.gopher_quality import GopherQuality
from stages.limits import AtLeastZero, Percentile
from stages.registry import BUILT_IN, recipe_stages, stage_class


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["stages", *arguments])
    assert not caught.value.code
    return capsys.readouterr().out


def test_it_lists_every_stage_that_a_recipe_may_name_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    found = {stage["name"]: stage for stage in json.loads(output(capsys, "--json"))}
    reader = found.pop("read")
    assert "min_status" in reader["parameters"]
    assert {"reason": "segmented", "score": "kind", "forbidden": ["continuation"]} in reader["checks"]
    assert list(found) == recipe_stages()
    for name, stage in found.items():
        assert stage == json.loads(json.dumps(describe(stage_class(name))))
        assert stage["summary"]
        assert stage["reasons"] == list(reasons_of(stage_class(name)))
        assert stage["edits"] == list(stage_class(name).edits)
        assert "domains" in stage["parameters"]
    table = output(capsys)
    assert all(name in table for name in found)
    assert not any(name in table for name in BUILT_IN)


def test_parameters_have_their_type_and_their_default_if_they_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = {stage["name"]: stage["parameters"] for stage in json.loads(output(capsys, "--json"))}
    assert found["language_v1"]["min_chars"] == {"type": "Annotated[int, pydantic.Field(ge=0)]", "default": 50}
    assert "default" not in found["sample_v1"]["share"]
    table = output(capsys)
    assert "min_chars = 50  int" in table
    assert "share (required)" in table


def test_scores_have_their_scale_and_checks_the_parameters_that_they_read(capsys: pytest.CaptureFixture[str]) -> None:
    found = {stage["name"]: stage for stage in json.loads(output(capsys, "--json"))}
    for stage in found.values():
        assert all(score["scale"] in ("count", "ratio", "log10", "category") for score in stage["scores"])
        scores = {score["name"] for score in stage["scores"]}
        for check in stage["checks"]:
            assert check["score"] in scores
            assert {"min", "max", "allowed", "forbidden", "null"} & check.keys()
            named = [check[end] for end in ("min", "max", "allowed", "forbidden") if isinstance(check.get(end), str)]
            assert all(name == "*" or name.partition(".")[0] in stage["parameters"] for name in named)
    language = {check["reason"]: check for check in found["language_v1"]["checks"]}
    assert language["unwanted_language"] == {"reason": "unwanted_language", "score": "label", "allowed": "keep"}
    table = output(capsys)
    assert "confidence (ratio): how likely it is, by the model" in table
    assert "drops unwanted_language  allowed keep" in table
    assert "instance" not in table


@base.stage
class Stricter(GopherQuality):
    """Has parameters from another stage, and a limit that is measured unless a recipe says otherwise."""

    name: ClassVar[str] = "stricter_v1"
    max_words: AtLeastZero = Percentile(percentile=95)


def test_parameters_that_are_inherited_and_limits_that_are_tables_are_described() -> None:
    found = json.loads(json.dumps(describe(Stricter)))["parameters"]
    assert found["max_words"] == {"type": "AtLeastZero", "default": {"percentile": 95.0}}
    assert found["min_words"] == describe(GopherQuality)["parameters"]["min_words"]


PACKAGE = """
from typing import ClassVar
from stages.base import per_row, stage
from stages.checks import Check
from stages.scores import Count

@stage
class Loud:
    \"\"\"Drops what shouts.\"\"\"

    name: ClassVar[str] = "loud_v1"
    scores = (Count("marks", "exclamation marks"),)
    checks = (Check("shouted", "marks", max="most"),)
    most: int = 3

    def measure(self, batch):
        return {"marks": per_row(batch, lambda text: text.count("!"))}
"""


def test_stages_of_installed_packages_are_listed_with_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud_stage_package.py").write_text(PACKAGE)
    info = tmp_path / "loud_stages-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-stages\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[headrace.stages]\nloud_v1 = loud_stage_package:Loud\n")
    (info / "RECORD").write_text("loud_stage_package.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._installed.cache_clear()
    registry._distributions.cache_clear()
    try:
        found = {stage["name"]: stage for stage in json.loads(output(capsys, "--json"))}
        table = output(capsys)
    finally:
        registry._installed.cache_clear()
        registry._distributions.cache_clear()
    assert list(found)[-1] == "loud_v1"
    assert found["loud_v1"]["origin"] == "loud-stages==1.2"
    assert found["loud_v1"]["checks"] == [{"reason": "shouted", "score": "marks", "max": "most"}]
    assert "loud_v1  (loud-stages==1.2)  Drops what shouts." in table
