"""The demo's corpus and recipe, written once, and a run of it to compare with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.small import Mount, write_small
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
def small_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of a small corpus beside it, for runs that are made to fail."""
    return write_small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def small_run(small_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small recipe, run by one worker without interruption. Read only."""
    out = tmp_path_factory.mktemp("small_run") / "run"
    headrace("run", small_recipe, "--out", out, "--workers", "1", "--no-train")
    return out


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts something at a folder of the test's own. Only root may."""
    mounted: list[Path] = []

    def do(*arguments: str, remount: bool = False) -> Path:
        place = tmp_path / "mounted"
        place.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True, check=False)
        if done.returncode and not remount:
            pytest.skip(f"cannot mount a file system here, which takes root: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        if not remount:
            mounted.append(place)
        return place

    yield do
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)
