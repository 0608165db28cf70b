"""Goldens of stages: what each does to every input, under each set of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stages.base import Stage
from stages.marking import mark
from stages.registry import REGISTRY
from tests.golden.golden import FOLDER, Case, Golden, Section, digest, plain
from tests.golden.inputs import Input, batch_of
from tests.golden.parameters import FILES, TOLERANCES, build, inputs_of, variants_of

STAGES: Final = FOLDER / "stages"


def path_of(name: str) -> Path:
    """Return where the golden of a stage is kept."""
    return STAGES / f"{name}.json"


def compute(name: str) -> Golden:
    """Return the golden of the stage registered as ``name``, as of now."""
    family = Golden(name, {}).family
    variants, inputs = variants_of(name), inputs_of(family)
    sections = {
        variant: _section(build(name, parameters), parameters, inputs) for variant, parameters in variants.items()
    }
    return Golden(name, sections, tolerance=TOLERANCES.get(family, 0.0))


def compute_all() -> dict[Path, Golden]:
    """Return the goldens of all registered stages, by where they are kept."""
    return {path_of(name): compute(name) for name in REGISTRY}


def _section(stage: Stage, parameters: Mapping[str, Any], inputs: Mapping[str, Input]) -> Section:
    batch = batch_of(inputs)
    before, after = batch.to_pylist(), mark(stage, batch).to_pylist()
    cases = {
        name: Case(digest(one.key.encode()), _written(*rows))
        for name, one, *rows in zip(inputs, inputs.values(), before, after, strict=True)
    }
    # A model that a package carries has no path here; its content counts all the same.
    files = {_name(Path(path)): digest(Path(path).read_bytes()) for path in stage.files()}
    return Section({"parameters": parameters, "files": files}, cases)


def _written(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a stage changed, and those that it added with something in them."""
    return {key: plain(value) for key, value in after.items() if value != before.get(key)}


def _name(path: Path) -> str:
    return path.relative_to(FILES).as_posix() if path.is_relative_to(FILES) else path.name
