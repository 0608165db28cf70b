"""Goldens of recipes: the digest of every file that a run publishes, pass by pass."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from pipelines.beam.runners import LocalRunner
from pipelines.chain import stage_names
from pipelines.driver import check, curate
from pipelines.passes.build import KINDS
from pipelines.recipe import parse_recipe
from pipelines.workspace import RECIPE_FILE, Workspace
from tests.golden.corpus import write_corpus
from tests.golden.golden import FOLDER, Case, Golden, Section, digest
from tests.integration.support import content
from tests.pipelines.support import Silent

RECIPES: Final = FOLDER / "recipes"

_CONTENT_HASH: Final = re.compile(r"-[0-9a-f]{16}(?=\.\w+$)")
"""Left out of the names of files: it is the beginning of their digest, and a file that changes keeps its place."""


def names() -> list[str]:
    """Return the names of the golden recipes."""
    return sorted(path.parent.name for path in RECIPES.glob("*/recipe.toml"))


def path_of(name: str) -> Path:
    """Return where the golden of a recipe is kept."""
    return RECIPES / name / "golden.json"


def compute(name: str) -> Golden:
    """Run a recipe and return its golden: a case is a pass, its output the sha256 of each file it published."""
    table = tomllib.loads((RECIPES / name / "recipe.toml").read_text(encoding="utf-8"))
    recipe = parse_recipe(table, name)
    with tempfile.TemporaryDirectory() as scratch:
        base, root = Path(scratch, "in"), Path(scratch, "out")
        base.mkdir()
        write_corpus(base)
        workspace = Workspace.of(str(root), recipe, str(base))
        workspace.save_recipe()
        with LocalRunner(1) as runner:
            curate(workspace, check(workspace), runner, Silent())
        corpus = digest(json.dumps(content(base), sort_keys=True).encode())
        files = _published(root)
    cases = {part: Case(corpus, found) for part, found in files.items()}
    versions = {work.name: work.version for work in KINDS} | {"stages": stage_names(recipe)}
    return Golden(name, {"passes": Section(table, cases)}, versions)


def compute_all() -> dict[Path, Golden]:
    """Return the goldens of all recipes, by where they are kept."""
    return {path_of(name): compute(name) for name in names()}


def _published(root: Path) -> dict[str, dict[str, str]]:
    """Return sha256 by file, by top-level folder; files of the top itself under the name ``run``."""
    files = content(root)
    places = {_CONTENT_HASH.sub("", path) for path in files}
    assert len(places) == len(files), "two files differ in nothing but their content's hash"
    # Where its inputs lie on this machine is the one thing in a run's folder that is not its output.
    saved = json.loads((root / RECIPE_FILE).read_text(encoding="utf-8"))
    files[RECIPE_FILE] = hashlib.sha256(json.dumps(saved["recipe"], sort_keys=True).encode()).hexdigest()
    passes: dict[str, dict[str, str]] = {}
    for path, sha256 in files.items():
        folder, separator, rest = path.partition("/")
        passes.setdefault(folder if separator else "run", {})[_CONTENT_HASH.sub("", rest or path)] = sha256
    return passes
