from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shards.errors import IncompleteError
from shards.finished import DIGESTS_FILE, require_finished
from tests.trainer.synthetic_run import finish, write_run, write_settings


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", documents=20)


def test_a_finished_run_passes(run: Path) -> None:
    require_finished(run)


@pytest.mark.parametrize(
    "missing", [DIGESTS_FILE, "schedule.json", "train.json", "schedule/manifest.json", "catalog/manifest.json"]
)
def test_what_is_missing_is_named_with_the_remedy(run: Path, missing: str) -> None:
    (run / missing).unlink()
    with pytest.raises(IncompleteError) as caught:
        require_finished(run)
    assert missing in str(caught.value)
    assert "un the recipe again" in caught.value.remedy
    assert caught.value.place == str(run)


def _retrained(run: Path) -> None:
    write_settings(run, model={"layers": 9}, finished=False)


def _rescheduled(run: Path) -> None:
    path = run / "schedule.json"
    path.write_text(path.read_text().replace("0.003", "0.3"))


def _other_shards(run: Path) -> None:
    path = run / "shards/manifest.json"
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize(
    ("change", "named"),
    [(_retrained, "train.json"), (_rescheduled, "schedule.json"), (_other_shards, "shards/manifest.json")],
)
def test_files_of_another_recipe_are_not_those_of_the_run(
    run: Path, change: Callable[[Path], None], named: str
) -> None:
    change(run)
    with pytest.raises(IncompleteError, match=f"^{named} is not what the run wrote"):
        require_finished(run)
    finish(run)
    require_finished(run)


def test_manifests_must_be_of_the_run_that_finished(run: Path) -> None:
    path = run / DIGESTS_FILE
    digests = json.loads(path.read_text())
    path.write_text(json.dumps({**digests, "catalog": "0" * 64}))
    with pytest.raises(IncompleteError, match=r"^catalog/manifest\.json is of another recipe"):
        require_finished(run)


@pytest.mark.parametrize("value", ["[]", "{}", "3", '{"units": 3}', '{"digest": null, "units": [{}]}', "{"])
def test_what_is_no_manifest_is_refused(run: Path, value: str) -> None:
    (run / "schedule/manifest.json").write_text(value)
    with pytest.raises(IncompleteError):
        require_finished(run)


def test_a_run_without_a_schedule_has_nothing_to_train_by(run: Path) -> None:
    (run / "schedule.json").unlink()
    (run / "train.json").unlink()
    finish(run)
    with pytest.raises(IncompleteError, match="no schedule to train by") as caught:
        require_finished(run)
    assert "[schedule]" in caught.value.remedy
