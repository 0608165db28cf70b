from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shards.errors import IncompleteError
from shards.finished import DIGESTS_FILE, require_finished
from shards.sealed import read_sealed, write_sealed
from shards.store import Store
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
    store = Store(run)
    write_sealed(store, DIGESTS_FILE, {**read_sealed(store, DIGESTS_FILE), "catalog": "0" * 64})
    with pytest.raises(IncompleteError, match=r"^catalog/manifest\.json is missing, changed, or of another recipe"):
        require_finished(run)


@pytest.mark.parametrize("digests", [{"catalog": None}, {"catalog": 3, "schedule": "0"}])
def test_what_are_no_digests_is_refused(run: Path, digests: dict[str, Any]) -> None:
    write_sealed(Store(run), DIGESTS_FILE, digests)
    with pytest.raises(IncompleteError, match=r"^digests\.json is not as a run writes it"):
        require_finished(run)


READ = [DIGESTS_FILE, "schedule.json", "train.json", "shards/manifest.json"]


@pytest.mark.parametrize("path", [*READ, "schedule/manifest.json", "catalog/manifest.json"])
@pytest.mark.parametrize("where", [0.0, 0.4, 0.99])
def test_a_flipped_bit_in_what_a_trainer_reads_is_found(run: Path, path: str, where: float) -> None:
    data = bytearray((run / path).read_bytes())
    data[int(where * len(data))] ^= 1
    (run / path).write_bytes(data)
    with pytest.raises(IncompleteError) as caught:
        require_finished(run)
    assert path in caught.value.what
    assert "un the recipe again" in caught.value.remedy


@pytest.mark.parametrize("name", ["schedule", "catalog"])
def test_a_damaged_part_of_a_manifest_has_its_copy(run: Path, name: str) -> None:
    (part,) = (run / name / "manifest").glob("*.arrow")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    require_finished(run)
    (copy,) = (run / name / "manifest" / "copy").glob("*.arrow")
    copy.unlink()
    with pytest.raises(IncompleteError, match=f"{name}/manifest"):
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
