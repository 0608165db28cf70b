from __future__ import annotations

import pytest

from tests.golden.golden import COMMAND, complaint, differences, load
from tests.golden.recipe_goldens import compute, names, path_of

# Takes whole recipes through their passes.
pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", names())
def test_a_recipe_publishes_the_files_that_its_golden_says(name: str) -> None:
    assert path_of(name).is_file(), f"the recipe {name} has no golden; run: {COMMAND}"
    recorded, now = load(path_of(name)), compute(name)
    found = differences(recorded, now)
    assert not found, complaint(found, recorded, "raise the version of the pass or stage that made other bytes")
    assert recorded.versions == now.versions, f"a pass has another version and the same files; run: {COMMAND}"
