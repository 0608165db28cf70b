from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.driver import locked
from pipelines.recipe import parse_recipe
from pipelines.workspace import RECIPE_FILE, RUN_FILE, Job, SupersededError, Workspace, describe
from shards.errors import IncompleteError, UserError
from shards.manifest import Marker, PassFolder
from shards.sealed import read_sealed
from shards.store import SCRATCH, Store

RECIPE = parse_recipe({"sources": [{"glob": "*.jsonl"}], "stages": [{"use": "gopher_quality_v2", "min_words": 3}]}, "t")


def test_a_saved_recipe_opens_as_it_was(tmp_path: Path) -> None:
    made = Workspace.of(str(tmp_path / "out"), RECIPE, str(tmp_path))
    made.save_recipe()
    opened = Workspace.open(str(tmp_path / "out"))
    assert opened.recipe == RECIPE
    assert opened.base == str(tmp_path)
    assert describe(opened.recipe) == describe(RECIPE)
    assert opened.recipe.stages[0].parameters == {"min_words": 3}


def test_the_resolved_recipe_says_what_was_left_out(tmp_path: Path) -> None:
    Workspace.of(str(tmp_path), RECIPE, ".").save_recipe()
    saved = Store(tmp_path).read_json(RECIPE_FILE)["recipe"]
    assert saved["dedup"]["threshold"] == 0.8
    assert saved["sources"][0]["text_key"] == "text"


def test_planning_touches_nothing(tmp_path: Path) -> None:
    Workspace.of(str(tmp_path / "out"), RECIPE, ".")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="files that do not belong to a run"):
        Workspace.of(str(tmp_path), RECIPE, ".")
    assert (tmp_path / "deep" / "thesis.txt").read_text() == "mine"


def test_a_file_is_no_output_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="the output folder is a file"):
        Workspace.of(str(tmp_path / "file"), RECIPE, ".")


def test_a_driver_that_ended_early_can_be_tried_again(tmp_path: Path) -> None:
    made = Workspace.of(str(tmp_path / "out"), RECIPE, ".")
    with locked(made), made.store.scratch() as scratch:
        (scratch / "half").write_bytes(b"x")
        assert made.store.list(".") == [".lock", f"{SCRATCH}/{scratch.name}/half"]
        Workspace.of(str(tmp_path / "out"), RECIPE, ".")


def test_a_folder_without_a_run_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run is here"):
        Workspace.open(str(tmp_path))


def test_a_damaged_recipe_is_found_and_written_again_by_the_next_run(tmp_path: Path) -> None:
    made = Workspace.of(str(tmp_path), RECIPE, str(tmp_path))
    made.save_recipe()
    data = (tmp_path / RECIPE_FILE).read_bytes()
    for content in (b"{", b"", data.replace(b"3", b"2", 1), data[:-9]):
        (tmp_path / RECIPE_FILE).write_bytes(content)
        with pytest.raises(IncompleteError, match=r"recipe\.json is not .*Run the recipe again"):
            Workspace.open(str(tmp_path))
    made.save_recipe()
    assert (tmp_path / RECIPE_FILE).read_bytes() == data
    assert Workspace.open(str(tmp_path)).recipe == RECIPE


def test_input_paths_are_relative_to_the_recipe(tmp_path: Path) -> None:
    made = Workspace.of(str(tmp_path / "out"), RECIPE, str(tmp_path))
    assert made.input_path("a/b.txt") == str(tmp_path / "a" / "b.txt")
    assert made.input_path("/abs.txt") == "/abs.txt"
    assert made.input_path("s3://bucket/x") == "s3://bucket/x"


def test_a_job_is_small_to_pickle_and_opens_its_store_once(tmp_path: Path) -> None:
    job = Job(str(tmp_path), "key", "judge", "d" * 64)
    assert len(pickle.dumps(job)) < 500
    there = pickle.loads(pickle.dumps(job))
    assert there == job
    assert there.store is job.store
    assert job.store.root == str(tmp_path)


def test_a_job_commits_markers_of_its_pass(tmp_path: Path) -> None:
    Workspace.of(str(tmp_path), RECIPE, str(tmp_path)).take_over("key")
    job = Job(str(tmp_path), "key", "judge", "d1")
    entry = job.store.publish_bytes(b"rows", "judge/keys", "u", ".arrow", 2)
    job.commit("u", {"keys": entry}, {"kept": 2}, {"counts": pa.table({"rows": [2]})})
    folder = PassFolder(job.store, "judge", "d1")
    folder.finish(["u"])
    manifest = folder.manifest()
    assert manifest.by_unit == {"u": Marker("u", {"keys": entry}, {"kept": 2})}
    assert manifest.table("counts").to_pylist() == [{"unit": "u", "rows": 2}]


def test_a_folder_that_was_taken_over_is_committed_to_by_its_new_run_alone(tmp_path: Path) -> None:
    made = Workspace.of(str(tmp_path / "out"), RECIPE, str(tmp_path))
    made.take_over("key")
    assert read_sealed(made.store, RUN_FILE) == {"run": "key", "digests": {}}
    assert Workspace.open(made.store.root).recipe == RECIPE
    mine, zombie = (Job(made.store.root, key, "judge", "d1") for key in ("key", "another"))
    mine.commit("u", {})
    with pytest.raises(SupersededError, match="now belongs to another run"):
        zombie.commit("v", {})
    assert set(PassFolder(made.store, "judge", "d1").survey().rows) == {"u"}
