"""The wheel holds exactly the four packages, with what they need at run time."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.support import CHECKOUT

pytestmark = pytest.mark.integration


def test_the_wheel_holds_the_four_packages_and_the_demo_s_files(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", str(tmp_path), str(CHECKOUT)], check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("headrace-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"pipelines", "stages", "shards", "trainer"}
    assert {"pipelines/demo/recipe.toml", "pipelines/demo/passages.toml", "stages/html/forest.json"} <= set(names)
    metadata = next(name for name in names if name.endswith("entry_points.txt"))
    assert "[headrace.commands]" in zipfile.ZipFile(wheel).read(metadata).decode()
