"""One flipped bit in any kind of file that a run keeps: found before it is used, and undone by the same command."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import cost_files
from pipelines.beam.runners import LocalRunner
from pipelines.driver import judged_run
from pipelines.inspection import documents
from pipelines.inspection.funnel import duplicates
from pipelines.inspection.integrity import verify
from pipelines.inspection.verdicts import verdicts
from pipelines.plan import PLAN_FILE, load_plan
from pipelines.planning.digests import DIGESTS_INDEX
from pipelines.planning.seen import SEEN_FILE
from pipelines.workspace import RECIPE_FILE, RUN_FILE
from shards.errors import IncompleteError
from shards.finished import DIGESTS_FILE, require_finished
from shards.reader import ShardSet
from shards.store import Store
from tests.pipelines.conftest import Corpus, Made
from tests.pipelines.support import content, finished_run, flip, forget, redone, unfold

READ_BY_PASSES: dict[str, tuple[str, ...]] = {
    "fit_lm/models": ("judge",),
    "judge/documents": ("near_sets", "edits", "tokenizer", "encoder", "write"),
    "judge/verdicts": ("histograms", "late", "drops"),
    "judge/keys": ("exact_keys", "near_bands", "near_sets"),
    "decide/cuts": ("late",),
    "late/marks": ("exact_keys", "near_bands", "drops"),
    "exact_keys/keys": ("exact",),
    "exact_keys/copies": ("near_bands", "duplicates"),
    "exact/drops": ("near_bands", "duplicates"),
    "exact/followers": ("near_witnesses",),
    "near_bands/bands": ("near_buckets",),
    "near_bands/links": ("near_components",),
    "near_buckets/links": ("near_components",),
    "near_components/labels": ("near_sets",),
    "near_sets/sets": ("near",),
    "near/removed": ("near_witnesses", "duplicates"),
    "near/clusters": ("duplicates",),
    "near_witnesses/moved": ("duplicates",),
    "duplicates/duplicates": ("drops",),
    "duplicates/clusters": ("drops",),
    "drops/drops": ("edits",),
    "edits/edits": ("tokenizer", "encoder", "write"),
    "edits/drops": ("tokenizer", "encoder", "write"),
    "drops/clusters": ("write",),
    "tokenizer/tokenizer": ("encoder", "write", "catalog"),
    "tokenizer/unfit": ("encoder", "write"),
}
"""Every kind of file that a pass reads, with the passes that read it."""
READ_BY_PEOPLE: dict[str, Callable[[Any], Any]] = {
    "judge/verdicts": lambda run: list(verdicts(run)),
    "judge/samples": lambda run: documents.dropped_samples(run, "all", 2, 0),
    "judge/documents": lambda run: documents.kept_samples(run, 10**6, 0),
    "drops/drops": lambda run: duplicates(run),
    "edits/drops": lambda run: list(verdicts(run)),
    "edits/scores": lambda run: list(verdicts(run)),
    "edits/edits": lambda run: documents.kept_samples(run, 10**6, 0),
}
READ_BY_TRAINERS = {"schedule.json": "schedule", "train.json": "schedule", "shards/manifest.json": "catalog"}
"""Files of fixed names, with the passes that make them."""
SHARDS = "shards"
"""Too much to read for every training: compared on request, or where they arrive."""
INDICES = ("shards/index/listing", "shards/index/lengths")
"""Read by trainers in part: a list of shards is compared when it is opened, lengths by block where they are touched."""
MANIFESTS = ("index", "part", "copy")
WRITTEN_BY_EVERY_RUN = (RECIPE_FILE, RUN_FILE, DIGESTS_FILE)
KEPT_TWICE = (PLAN_FILE, "plan/sources", DIGESTS_INDEX, "plan/digests")
"""What of a plan cannot be worked out again: the indices of sources, and the digests of what was read."""
PLANNED_AGAIN = ("plan/splits",)
TOLD_OF_A_RUN = ("timings.json", "costs", SEEN_FILE)
"""How a run went, and when files were seen: no output depends on it."""


class EditedCorpus(Corpus):
    """The corpus, with a recipe that edits texts, and so has files of every kind."""

    def recipe(self, **changes: Any) -> dict[str, Any]:
        """Return the recipe's table, its texts edited."""
        edits = [{"use": "tests.stages.editors:Replacer", "pattern": r"\bthe\b", "replacement": "this"}]
        return super().recipe(**{"edits": edits, **changes})


@pytest.fixture(scope="module")
def corpus(corpus: Corpus) -> Corpus:
    return EditedCorpus(**vars(corpus))


@pytest.fixture(scope="module")
def made(corpus: Corpus, run_recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    made: Made = run_recipe(tmp_path_factory.mktemp("run"), corpus.recipe(), corpus.folder, LocalRunner(1))
    return made


def copy_of(kind: str) -> str:
    """The kind of the copies of a kind of file that the plan keeps twice."""
    return kind.replace("plan/", "plan/copy/")


def kind_of(path: str) -> str:
    """The kind of a file of a run, by its path."""
    folder, _, name = path.rpartition("/")
    if folder.endswith("/manifest/copy"):
        return "copy"
    if folder.endswith("/manifest"):
        return "part"
    if folder in ("", "plan", "plan/copy") or path == "shards/manifest.json":
        return path
    if name == "manifest.json":
        return "index"
    if folder == "shards/index":
        return INDICES[name.endswith(".lengths")]
    if folder.startswith("shards/"):
        return SHARDS
    # A folder for each kind, or the kinds of a pass of one unit in its folder.
    return folder if "/" in folder else f"{folder}/{re.split(r'-[0-9a-f]{16}', name)[0]}"


def files_of(root: Path, kind: str) -> list[Path]:
    return [root / path for path in sorted(content(root)) if kind_of(path) == kind]


def largest(root: Path, kind: str) -> Path:
    """The file of a kind that holds most: an empty one need not be opened."""
    return max(files_of(root, kind), key=lambda path: path.stat().st_size)


def test_every_kind_of_file_is_tried_here(made: Any) -> None:
    kinds = {kind_of(path) for path in content(made.root)}
    copies = map(copy_of, KEPT_TWICE)
    tried = {*READ_BY_PASSES, *READ_BY_PEOPLE, *READ_BY_TRAINERS, *INDICES, *MANIFESTS, *WRITTEN_BY_EVERY_RUN, SHARDS}
    assert kinds == {*tried, *KEPT_TWICE, *copies, *PLANNED_AGAIN}
    files = {path.relative_to(made.root).as_posix() for path in made.root.rglob("*") if path.is_file()}
    assert all(path.startswith(TOLD_OF_A_RUN) for path in files - set(content(made.root)))
    declared: dict[str, set[str]] = {}
    for name, work in made.passes.items():
        for of, kind in work.inputs:
            for marker in made.run.manifest(of).markers():
                if kind in marker.files:
                    declared.setdefault(kind_of(marker.files[kind].path), set()).add(name)
    assert {kind: set(readers) for kind, readers in READ_BY_PASSES.items()} == declared


@pytest.mark.parametrize(
    ("kind", "reader"), [(kind, reader) for kind, readers in READ_BY_PASSES.items() for reader in readers]
)
def test_what_a_pass_reads_is_compared_and_its_unit_alone_made_anew(
    made: Any, corpus: Any, run_recipe: Any, copied: Path, kind: str, reader: str
) -> None:
    before = content(copied)
    damaged, owner = largest(copied, kind), kind.split("/")[0]
    flip(damaged)
    forget(copied, reader)
    with pytest.raises(IncompleteError, match=re.escape(f"{damaged.name} is not what was written")) as caught:
        run_recipe(copied, corpus.recipe(), corpus.folder)
    assert caught.value.place == str(copied)
    assert caught.value.remedy.startswith("Run the recipe again")
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert again.notes.ended[owner].startswith("1 unit in")
    others = len(made.units(owner)) - 1
    assert again.notes.ended[owner].endswith(f", {others} finished before") == (others > 0)
    assert redone(again) == {owner, reader}
    assert content(copied) == before


@pytest.mark.parametrize("kind", READ_BY_PEOPLE)
def test_what_people_look_into_is_compared(corpus: Any, run_recipe: Any, copied: Path, kind: str) -> None:
    before = content(copied)
    damaged = largest(copied, kind)
    flip(damaged)
    with pytest.raises(IncompleteError, match=rf"{damaged.name} is not what was written.*Run 'headrace verify"):
        READ_BY_PEOPLE[kind](finished_run(copied))
    # Who only looks deletes nothing.
    run = finished_run(copied)
    run.store.repairs = True
    assert [found.path for found in verify(run, lambda _: None)] == [damaged.relative_to(copied).as_posix()]
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    owner = kind.split("/")[0]
    assert again.notes.ended[owner].startswith("1 unit in")
    assert redone(again) == {owner}
    assert content(copied) == before


@pytest.mark.parametrize("kind", READ_BY_TRAINERS)
def test_what_a_trainer_reads_is_compared_and_written_again(
    corpus: Any, run_recipe: Any, copied: Path, kind: str
) -> None:
    before = content(copied)
    require_finished(copied)
    flip(copied / kind)
    with pytest.raises(IncompleteError, match=rf"{kind} is not what the run wrote.*Run the recipe again"):
        require_finished(copied)
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert redone(again) == {READ_BY_TRAINERS[kind]}
    assert content(copied) == before
    require_finished(copied)


@pytest.mark.parametrize("kind", INDICES)
def test_what_a_trainer_reads_in_part_is_compared_and_written_again(
    corpus: Any, run_recipe: Any, copied: Path, kind: str
) -> None:
    before = content(copied)
    # The middle of a file may be of another block than the first document's.
    damaged = min(files_of(copied, kind), key=lambda path: path.stat().st_size)
    domain, subset = damaged.name.split("-")[0].split(".")
    flip(damaged, 0.6)
    with pytest.raises(IncompleteError, match=rf"{re.escape(damaged.name)}.*Run 'headrace verify'"):
        ShardSet.open(copied / "shards").lengths(domain, subset, np.arange(1))
    run = finished_run(str(copied))
    run.store.repairs = True
    assert [found.path for found in verify(run, lambda _: None)] == [damaged.relative_to(copied).as_posix()]
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert redone(again) == {"catalog"}
    assert content(copied) == before


@pytest.mark.parametrize("kind", MANIFESTS)
def test_manifests_are_repaired_in_silence_and_no_unit_is_made_again(
    made: Any, corpus: Any, run_recipe: Any, copied: Path, kind: str
) -> None:
    before = content(copied)
    damaged = files_of(copied, kind)
    assert len(damaged) == len(made.passes)
    for number, path in enumerate(damaged):
        flip(path, number / len(damaged))
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    for name, note in again.notes.ended.items():
        assert note.startswith("0 units in"), (name, note)
    assert content(copied) == before


def test_a_damaged_part_of_a_manifest_is_no_obstacle_to_who_looks_into_the_run(made: Any, copied: Path) -> None:
    for path in files_of(copied, "part"):
        flip(path)
    run = finished_run(copied)
    assert [row for table in verdicts(run) for row in table.to_pylist()] == made.verdicts()


def test_a_damaged_marker_makes_its_unit_anew(made: Any, corpus: Any, run_recipe: Any, copied: Path) -> None:
    before = content(copied)
    flip(unfold(copied, "judge", made.run.digests["judge"])[2])
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert again.notes.ended["judge"].startswith("1 unit in")
    assert again.notes.ended["judge"].endswith(", 3 finished before")
    assert redone(again) == {"judge"}
    assert content(copied) == before


@pytest.mark.parametrize("kind", WRITTEN_BY_EVERY_RUN)
@pytest.mark.parametrize("at", [0.0, 0.3, 0.97])
def test_what_every_run_writes_is_compared_and_repaired_in_silence(
    corpus: Any, run_recipe: Any, copied: Path, kind: str, at: float
) -> None:
    before = content(copied)
    flip(copied / kind, at)
    if kind == RUN_FILE:
        # It is read where a run has not come to its end.
        (copied / DIGESTS_FILE).unlink()
    with pytest.raises(IncompleteError, match=rf"{kind} is not .*Run the recipe again"):
        judged_run(str(copied))
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert redone(again) == set()
    assert content(copied) == before


@pytest.mark.parametrize("kind", TOLD_OF_A_RUN)
@pytest.mark.parametrize("at", [0.0, 0.5])
def test_damage_to_what_is_told_of_a_run_ends_none(
    corpus: Any, run_recipe: Any, copied: Path, kind: str, at: float
) -> None:
    before = content(copied)
    damaged = [path for path in copied.rglob("*") if path.is_file() and str(path.relative_to(copied)).startswith(kind)]
    assert damaged
    for path in damaged:
        flip(path, at)
    cost_files.read(Store(copied))
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert redone(again) == set()
    assert content(copied) == before


@pytest.mark.parametrize("what", ["tokens", "documents"])
def test_shards_are_compared_on_request_and_written_again_where_they_are_deleted(
    made: Any, corpus: Any, run_recipe: Any, copied: Path, what: str
) -> None:
    before = content(copied)
    damaged = max(
        (path for path in files_of(copied, SHARDS) if f".{what}-" in path.name), key=lambda p: p.stat().st_size
    )
    flip(damaged)
    with pytest.raises(IncompleteError, match=rf"{re.escape(damaged.name)}.*Delete it and run the recipe again"):
        ShardSet.open(copied / "shards").verify()
    damaged.unlink()
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert again.notes.ended["write"].startswith("1 unit in")
    assert again.notes.ended["write"].endswith(f", {len(made.units('write')) - 1} finished before")
    assert redone(again) == {"write"}
    assert content(copied) == before


@pytest.mark.parametrize("kind", [kind for once in KEPT_TWICE for kind in (once, copy_of(once))])
def test_what_of_a_plan_is_kept_twice_is_read_from_the_copy_and_repaired_in_silence(
    made: Any, corpus: Any, run_recipe: Any, copied: Path, kind: str
) -> None:
    before = content(copied)
    for path in files_of(copied, kind):
        flip(path)
    assert [row for table in verdicts(finished_run(copied)) for row in table.to_pylist()] == made.verdicts()
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert redone(again) == set()
    assert content(copied) == before


@pytest.mark.parametrize("kind", KEPT_TWICE)
def test_where_the_copy_is_damaged_too_nothing_is_read_with_other_indices(
    corpus: Any, run_recipe: Any, copied: Path, kind: str
) -> None:
    for each in (kind, copy_of(kind)):
        for path in files_of(copied, each):
            flip(path)
    before = content(copied)
    with pytest.raises(IncompleteError, match=rf"{kind}.* is not what was written, nor is there a copy of it"):
        run_recipe(copied, corpus.recipe(), corpus.folder)
    assert content(copied) == before


@pytest.mark.parametrize("kind", PLANNED_AGAIN)
def test_what_is_planned_again_is_compared_and_repaired_in_silence(
    corpus: Any, run_recipe: Any, copied: Path, kind: str
) -> None:
    before = content(copied)
    for path in files_of(copied, kind):
        flip(path)
    with pytest.raises(IncompleteError, match=rf"{kind}.* is not what was written.*Run the recipe again"):
        load_plan(Store(copied))
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert redone(again) == set()
    assert content(copied) == before
