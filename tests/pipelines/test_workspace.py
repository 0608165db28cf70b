from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pipelines.driver import locked
from pipelines.recipe import parse_recipe
from pipelines.workspace import RECIPE_FILE, Run, Workspace, describe
from shards.errors import UserError
from shards.store import SCRATCH, Store

RECIPE = parse_recipe({"sources": [{"glob": "*.jsonl"}], "stages": [{"use": "gopher_quality_v1", "min_words": 3}]}, "t")


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
    with pytest.raises(UserError, match="files that are not a run's"):
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
    for content in (None, b"{", b""):
        if content is not None:
            (tmp_path / RECIPE_FILE).write_bytes(content)
        with pytest.raises(UserError, match="no run is here"):
            Workspace.open(str(tmp_path))


def test_input_paths_are_relative_to_the_recipe(tmp_path: Path) -> None:
    made = Workspace.of(str(tmp_path / "out"), RECIPE, str(tmp_path))
    assert made.input_path("a/b.txt") == str(tmp_path / "a" / "b.txt")
    assert made.input_path("/abs.txt") == "/abs.txt"
    assert made.input_path("s3://bucket/x") == "s3://bucket/x"


def test_a_run_is_small_to_pickle_and_knows_its_passes(tmp_path: Path) -> None:
    Workspace.of(str(tmp_path), RECIPE, str(tmp_path)).save_recipe()
    run = Run(str(tmp_path), "key").with_digest("judge", "d1").with_digest("decide", "d2")
    assert len(pickle.dumps(run)) < 500
    there = pickle.loads(pickle.dumps(run))
    assert there == run
    assert (there.recipe, there.folder("judge").digest, there.folder("decide").digest) == (RECIPE, "d1", "d2")
    with pytest.raises(KeyError):
        run.folder("near")
