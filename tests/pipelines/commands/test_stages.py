from __future__ import annotations

import json

import pytest

from pipelines import cli
from pipelines.commands.stages import describe
from stages.registry import BUILT_IN, recipe_stages, stage_class


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["stages", *arguments])
    assert not caught.value.code
    return capsys.readouterr().out


def test_it_lists_every_stage_that_a_recipe_may_name_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    found = {stage["name"]: stage for stage in json.loads(output(capsys, "--json"))}
    assert list(found) == recipe_stages()
    for name, stage in found.items():
        assert stage == json.loads(json.dumps(describe(stage_class(name))))
        assert stage["summary"]
        assert stage["reasons"] == list(stage_class(name).reasons)
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
