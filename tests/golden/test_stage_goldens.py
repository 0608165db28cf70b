"""Every registered stage does what its golden says, and no golden is left without its stage."""

from __future__ import annotations

import pytest

from stages.base import reasons_of
from stages.registry import REGISTRY, stage_class
from tests.golden.golden import COMMAND, Golden, complaint, differences, load
from tests.golden.parameters import VARIANTS
from tests.golden.stage_goldens import STAGES, compute, path_of

each_stage = pytest.mark.parametrize("name", REGISTRY)


@each_stage
def test_a_stage_does_what_its_golden_says(name: str) -> None:
    assert path_of(name).is_file(), f"{name} has no golden; run: {COMMAND}"
    recorded, now = load(path_of(name)), compute(name)
    found = differences(recorded, now)
    assert not found, complaint(found, recorded, "raise the version in the stage's name")


@each_stage
def test_every_reason_of_a_stage_is_in_its_golden(name: str) -> None:
    outputs = [case.output for section in load(path_of(name)).sections.values() for case in section.cases.values()]
    missing = set(reasons_of(stage_class(name))) - {output.get("reason") for output in outputs}
    assert not missing, f"no input of tests/golden/inputs.py is dropped by {name} as {sorted(missing)}: add one"
    assert any(not output.get("dropped_by") for output in outputs)


def test_every_golden_is_of_a_registered_stage() -> None:
    left = {path.stem for path in STAGES.glob("*.json")} - set(REGISTRY)
    assert not left, f"{sorted(left)} are registered no more; run: {COMMAND}"
    assert {Golden(name, {}).family for name in REGISTRY} == set(VARIANTS)
