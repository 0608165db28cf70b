"""The demo's corpus and recipe, written once, and a run of it to compare with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.integration.support import headrace


@pytest.fixture(scope="session")
def demo_recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's recipe beside its corpus."""
    from pipelines.demo.corpus import write_corpus
    from pipelines.demo.recipe import demo_recipe

    folder = tmp_path_factory.mktemp("demo")
    write_corpus(folder / "corpus")
    recipe = folder / "demo.toml"
    recipe.write_text(demo_recipe(), encoding="utf-8")
    return recipe


@pytest.fixture(scope="session")
def reference_run(demo_recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's recipe, run by one worker without interruption."""
    out = tmp_path_factory.mktemp("reference") / "run"
    headrace("run", demo_recipe_file, "--out", out, "--workers", "1", "--no-train")
    return out


@pytest.fixture(scope="session")
def prism() -> str:
    """The Prism binary, a real Beam runner in Go."""
    candidates = [os.environ.get("HEADRACE_PRISM"), shutil.which("prism"), str(Path.home() / "go" / "bin" / "prism")]
    found = next((path for path in candidates if path and os.access(path, os.X_OK)), None)
    if found is None:
        pytest.skip("needs Prism: go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0, or HEADRACE_PRISM")
    return found
