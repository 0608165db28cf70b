"""The demo's recipe, annotated so that a newcomer can copy it."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

CORPUS: Final = "corpus"
"""Folder of the corpus beside the recipe, as the recipe is written."""


def demo_recipe(folder: Path = Path(CORPUS)) -> str:
    """Return the recipe's TOML for what ``write_corpus`` wrote to ``folder``: absolute, or as seen from the recipe."""
    text = resources.files("pipelines.demo").joinpath("recipe.toml").read_text(encoding="utf-8")
    return text.replace(f'"{CORPUS}/', f'"{folder.as_posix()}/')
