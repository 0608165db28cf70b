"""Where tests lie: one file of its own name for every source file."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("shards", "stages", "pipelines", "trainer")

TESTED_WHOLE = ("pipelines/commands/", "pipelines/demo/")
"""Folders whose files only work together: tests/pipelines/test_cli.py and test_demo_*.py run them as a user does."""


def test_every_source_file_has_a_test_file_of_its_own_name() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py"]
    names = {path.relative_to(ROOT).as_posix() for path in sources}
    assert len(names) > 100, "the sources were not found"
    untested = {name for name in names if not name.startswith(TESTED_WHOLE) and not _has_tests(name)}
    assert untested == set()


def _has_tests(source: str) -> bool:
    path = ROOT / "tests" / source
    # trainer/__main__.py is tested in tests/trainer/test_main.py.
    path = path.with_name(f"test_{path.stem.strip('_')}.py")
    return path.is_file() and "def test_" in path.read_text(encoding="utf-8")
