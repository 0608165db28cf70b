from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.beam.work_list import Unit
from pipelines.driver import DIGESTS_FILE, check, judged_run, locked
from pipelines.inspection.funnel import report_json
from pipelines.inspection.verdicts import verdicts
from pipelines.recipe import parse_recipe
from pipelines.workspace import Job, SupersededError, Workspace
from shards.errors import IncompleteError, UserError
from shards.manifest import PassFolder
from shards.store import SCRATCH
from tests.pipelines.support import content, finished_run, flip, redone, unfold


def times(folder: Path) -> dict[str, int]:
    """When each file of a pass was written, of its manifest aside."""
    files = (path for path in folder.rglob("*.arrow") if "manifest" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in files}


@pytest.fixture
def sources(corpus: Any, tmp_path: Path) -> Path:
    """A copy of the corpus, to be changed."""
    return Path(shutil.copytree(corpus.folder, tmp_path / "in"))


def light(corpus: Any, **changes: Any) -> dict[str, Any]:
    """A recipe without models and duplicates, for speed."""
    plain = {"lm": None, "stages": None, "schedule": None, "dedup": {"exact": False, "near": False}}
    table: dict[str, Any] = corpus.recipe(**plain, split_bytes=corpus.largest_bytes)
    return {**table, **changes}


@pytest.fixture(scope="module")
def plain(corpus: Any, run_recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of the light recipe: one split per file, books first. Copy its folder to change it."""
    return run_recipe(tmp_path_factory.mktemp("plain") / "out", light(corpus), corpus.folder)


@pytest.fixture
def out(plain: Any, tmp_path: Path) -> Path:
    """A copy of the light run's folder."""
    return Path(shutil.copytree(plain.root, tmp_path / "out"))


def test_a_second_run_changes_nothing(made: Any, corpus: Any, run_recipe: Any, copied: Path) -> None:
    before = content(copied)
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert again.notes.unchanged == set(again.passes) == set(made.passes)
    assert content(copied) == before
    assert (again.run.key, again.run.digests) == (made.run.key, made.run.digests)


def test_limits_that_a_stage_has_by_default_are_limits(
    corpus: Any, run_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "by_default.py").write_text(BY_DEFAULT)
    monkeypatch.syspath_prepend(tmp_path)
    stages = [{"use": "by_default:Longest"}]
    made = run_recipe(tmp_path / "out", light(corpus, stages=stages), corpus.folder)
    dropped = {(row["dropped_by"], row["reason"], row["domain"]) for row in made.verdicts() if row["dropped_by"]}
    assert {("longest_v1", "short", "books"), ("longest_v1:late", "long", "web")} <= dropped
    links = {link["name"]: link for link in report_json(made.run)["stages"]}
    for link in links.values():
        assert link["seen"] == link["kept"] + sum(link["dropped"].values()) + link["failed"]
    assert links["longest_v1:late"]["dropped"]


BY_DEFAULT = """
from typing import Any, ClassVar

from stages.base import per_row, stage
from stages.checks import Check
from stages.limits import Limit, Percentile, Grouped
from stages.scores import Count


@stage
class Longest:
    name: ClassVar[str] = "longest_v1"
    scores = (Count("chars"),)
    checks = (Check("short", "chars", min="min_chars"), Check("long", "chars", max="max_chars"))
    min_chars: Limit = Grouped(domain={"books": 1_600}, default=1)
    max_chars: Limit = Percentile(percentile=90)

    def measure(self, batch: Any) -> Any:
        return {"chars": per_row(batch, len)}
"""


def test_an_added_source_is_judged_and_finished_splits_are_left_alone(
    plain: Any, corpus: Any, run_recipe: Any, sources: Path, small_text: Any, out: Path
) -> None:
    judged = out / "judge"
    before = times(judged)
    # Sorts before all others: their documents must keep their ids all the same.
    url, text = "http://new.example/", small_text(77, 1_500)
    (sources / "web-!.jsonl").write_text(json.dumps({"url": url, "text": text}) + "\n")
    again = run_recipe(out, light(corpus), sources)
    total, done = again.notes.began["judge"]
    assert total - done == (sources / "web-!.jsonl").stat().st_size
    assert again.notes.ended["judge"].startswith("1 unit in")
    after = times(judged)
    assert {name: after[name] for name in before} == before
    assert len(again.splits) == len(plain.splits) + 1
    # A file of each kind: documents, verdicts, keys and samples.
    assert len(after) == len(before) + 4
    rows = plain.verdicts()
    assert again.verdicts()[: len(rows)] == rows
    assert [(row["doc_id"], row["url"]) for row in again.verdicts()[len(rows) :]] == [(4 << 32, url)]
    # A fresh folder that knows the same source table comes to the same bytes.
    fresh = out.parent / "fresh"
    shutil.copytree(out / "plan", fresh / "plan")
    shutil.copy(out / "recipe.json", fresh)
    assert content(run_recipe(fresh, light(corpus), sources).root) == content(out)


def test_a_removed_source_and_changed_settings_are_followed(
    corpus: Any, run_recipe: Any, sources: Path, out: Path
) -> None:
    (sources / "web-1.jsonl").unlink()
    table = light(corpus, leave_out_missing=True)
    table["sources"] = [{"glob": "web-*.jsonl", "licence": "CC-BY"}, {"glob": "books.jsonl", "domain": "novels"}]
    changed = run_recipe(out, table, sources)
    assert {row["doc_id"] >> 32 for row in changed.verdicts()} == {0, 1, 3}
    assert {(row["domain"], row["licence"]) for row in changed.verdicts()} == {
        ("novels", None),
        ("web", "CC-BY"),
        ("wiki", "CC-BY"),
    }
    assert {path.parts[-3] for path in (out / "shards").rglob("*.tokens-*.arrow")} == {"novels", "web", "wiki"}


def test_a_percentile_is_moved_without_judging_again(corpus: Any, run_recipe: Any, copied: Path) -> None:
    table = corpus.recipe()
    table["stages"][1]["max_perplexity"] = {"percentile": 90.0}
    again = run_recipe(copied, table, corpus.folder)
    assert {"fit_lm", "judge"} <= again.notes.unchanged
    assert "decide" in redone(again)
    score = again.judged("verdicts").column("perplexity_v1.perplexity").drop_null()
    dropped = [row for row in again.verdicts() if row["reason"] == "too_chaotic"]
    assert len(dropped) == pytest.approx(0.1 * len(score), abs=1)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("judge/documents", "cut"),
        ("near_bands/bands", "lost"),
        ("drops/drops", "lost"),
        ("shards/books/train", "cut"),
        ("fit_lm", "lost"),
    ],
)
def test_a_lost_or_cut_file_is_made_again(corpus: Any, run_recipe: Any, copied: Path, kind: str, damage: str) -> None:
    before = content(copied)
    victim = next(path for path in sorted((copied / kind).rglob("*")) if path.suffix in (".arrow", ".arpa", ".blocks"))
    if damage == "lost":
        victim.unlink()
    else:
        os.truncate(victim, victim.stat().st_size - 1)
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert len(redone(again)) == 1
    assert content(copied) == before


def test_lost_shards_catalogue_is_written_again(corpus: Any, run_recipe: Any, copied: Path) -> None:
    before = content(copied)
    (copied / "shards" / "manifest.json").unlink()
    assert redone(run_recipe(copied, corpus.recipe(), corpus.folder)) == {"catalog"}
    assert content(copied) == before


def test_what_died_between_files_and_marker_is_done_again_and_nothing_else(
    made: Any, corpus: Any, run_recipe: Any, copied: Path
) -> None:
    before = content(copied)
    markers = unfold(copied, "judge", made.run.digests["judge"])
    assert len(markers) == 4
    markers[1].unlink()
    (copied / "judge" / "documents" / "half-written.arrow").write_bytes(b"left by an attempt that died")
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    assert again.notes.ended["judge"].startswith("1 unit in")
    assert again.notes.ended["judge"].endswith(", 3 finished before")
    assert redone(again) == {"judge"}
    assert content(copied) == before


def test_a_pass_that_fails_keeps_what_it_finished(
    corpus: Any, run_recipe: Any, plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.passes.drops import Drops

    done: list[str] = []
    work = Drops.work

    def dying(self: Drops, job: Job, unit: Unit) -> None:
        if len(done) == 2:
            raise RuntimeError("killed")
        work(self, job, unit)
        done.append(unit.name)

    monkeypatch.setattr(Drops, "work", dying)
    with pytest.raises(RuntimeError, match="killed"):
        run_recipe(tmp_path / "out", light(corpus), corpus.folder)
    assert not (tmp_path / "out" / "shards").exists()
    with pytest.raises(UserError, match="not finished"):
        judged_run(str(tmp_path / "out"))
    monkeypatch.setattr(Drops, "work", work)
    again = run_recipe(tmp_path / "out", light(corpus), corpus.folder)
    assert again.notes.ended["drops"].startswith("2 units in")
    assert again.notes.ended["drops"].endswith(", 2 finished before")
    assert content(tmp_path / "out") == content(plain.root)


def test_two_drivers_in_one_folder_are_refused(corpus: Any, tmp_path: Path) -> None:
    workspace = Workspace.of(str(tmp_path / "out"), parse_recipe(corpus.recipe(), "t"), str(corpus.folder))
    with locked(workspace):
        left = workspace.store.root + f"/{SCRATCH}/w-other"
        Path(left).mkdir(parents=True)
        with pytest.raises(UserError, match="another process is working"), locked(workspace):
            pass
        # The refused driver must not have cleared the working one's files away.
        assert Path(left).is_dir()
    with locked(workspace):
        assert not Path(left).exists()


def test_a_finished_run_is_read_without_its_sources(made: Any, copied: Path) -> None:
    run = finished_run(copied)
    assert run.manifest("catalog").by_unit == made.run.manifest("catalog").by_unit
    assert run.digests == made.run.digests
    (copied / DIGESTS_FILE).unlink()
    assert not judged_run(str(copied))[1]
    with pytest.raises(UserError, match="no run is here"):
        judged_run(str(copied / "judge"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm": [{"language": "en", "model": "none.arpa"}]}, r"'none\.arpa' is missing"),
        ({"lm": [{"language": "en", "corpus": ["none*.txt"]}]}, r"'none\*\.txt' matches no file"),
        ({"stages": [{"use": "url_blacklist_v1", "lists": ["none.txt"]}]}, r"none\.txt"),
        ({"stages": [{"use": "no_such_v1"}]}, "no stage is called"),
        ({"sources": [{"glob": "*.warc.gz"}]}, r"'\*\.warc\.gz' matches no file"),
        ({"tokenizer": {"file": "none.json"}}, "tokeniser's file is missing"),
        (
            {"stages": [{"use": "gopher_quality_v2", "domains": ["web", "wbe"]}]},
            "no document can be of the domain 'wbe'",
        ),
        ({"stages": [{"use": "gopher_quality_v2", "domains": "web"}]}, r'this is a list: write \["web"\]'),
        ({"lm": [{"language": "und", "corpus": ["reference.txt"]}] * 2}, "two models of 'und'"),
        ({"dedup": {"threshold": 0.1, "permutations": 16}}, "less than 95%"),
        ({"dedup": {"shingle_words": 65}}, "less than or equal to 64"),
    ],
)
def test_what_a_recipe_names_is_checked_before_anything_is_written(
    corpus: Any, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    recipe = parse_recipe(corpus.recipe(schedule=None, stages=None, lm=None) | changes, "t")
    with pytest.raises(UserError, match=message):
        check(Workspace.of(str(tmp_path / "out"), recipe, str(corpus.folder)))
    assert not (tmp_path / "out").exists()


def test_digests_follow_the_chain(made: Any) -> None:
    assert list(made.run.digests) == list(made.passes)
    assert made.passes["judge"].digest(made.inputs("judge")) == made.run.digests["judge"]
    assert len(set(made.run.digests.values())) == len(made.run.digests)


def test_a_recipe_begun_and_given_up_leaves_the_one_before_it_whole(
    made: Any, corpus: Any, run_recipe: Any, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(copied)
    commit = PassFolder.commit

    def killed(self: PassFolder, *arguments: Any) -> None:
        commit(self, *arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PassFolder, "commit", killed)
        # Beam makes a RuntimeError of it: the runner gives back what was raised, number and all.
        with pytest.raises(OSError, match="No space left") as caught:
            run_recipe(copied, corpus.recipe(dedup={"shingle_words": 4}), corpus.folder)
    assert caught.value.errno == errno.ENOSPC
    again = run_recipe(copied, corpus.recipe(), corpus.folder)
    after = content(copied)
    assert {name for name in before if after.get(name) != before[name]} == set()
    assert len(list(verdicts(finished_run(copied)))) == len(list(verdicts(made.run)))
    # What the other recipe had marked by then counts for nothing here.
    assert redone(again) == set()


def test_a_change_that_changes_no_byte_ends_there(corpus: Any, run_recipe: Any, copied: Path) -> None:
    again = run_recipe(copied, corpus.recipe(dedup={"range_bytes": 4_096}), corpus.folder)
    # Within a range, rows may come in another order; what is found is the same.
    behind = {"near_bands", "near_components", "near_sets", "near_witnesses", "duplicates"}
    assert {"exact", "near_buckets", "near"} <= redone(again) <= {"exact", "near_buckets", "near", *behind}


def test_a_worker_that_outlived_its_run_commits_nothing(made: Any, copied: Path) -> None:
    zombie = Job(str(copied), made.run.key, "judge", made.run.digests["judge"])
    zombie.commit("00000-00000000", {})
    Workspace.open(str(copied)).take_over("of another recipe")
    with pytest.raises(SupersededError, match="belongs to another run"):
        zombie.commit("00001-00000000", {})


def test_where_a_corpus_lies_is_no_part_of_the_bytes(made: Any, corpus: Any, run_recipe: Any, tmp_path: Path) -> None:
    table = corpus.recipe()
    for source in table["sources"]:
        globs = [source["glob"]] if isinstance(source["glob"], str) else source["glob"]
        source["glob"] = [str(corpus.folder / glob) for glob in globs]
    elsewhere = run_recipe(tmp_path / "out", table, corpus.folder)
    shards = "shards/manifest.json"
    assert (elsewhere.root / shards).read_bytes() == (made.root / shards).read_bytes()


def test_a_stage_that_cannot_be_in_a_chain_is_refused_first(corpus: Any, tmp_path: Path) -> None:
    recipe = parse_recipe(light(corpus, stages=[{"use": "fingerprint_v2"}]), "test")
    with pytest.raises(UserError, match=r"fingerprint_v2.*\[dedup\]"):
        check(Workspace.of(str(tmp_path / "out"), recipe, str(corpus.folder)))


def test_a_bit_that_flipped_becomes_no_document(corpus: Any, run_recipe: Any, copied: Path) -> None:
    damaged = sorted((copied / "judge" / "documents").iterdir())[0]
    flip(damaged)
    table = corpus.recipe(tokenizer={"vocab_size": 333})
    with pytest.raises(IncompleteError, match=rf"{damaged.name} is not what was written.*Run the recipe again"):
        run_recipe(copied, table, corpus.folder)
    again = run_recipe(copied, table, corpus.folder)
    assert again.notes.ended["judge"].startswith("1 unit in")
    assert again.notes.ended["judge"].endswith(", 3 finished before")


def test_a_run_without_survivors_can_be_looked_into(corpus: Any, run_recipe: Any, tmp_path: Path) -> None:
    table = light(corpus)
    for source in table["sources"]:
        source["text_key"] = "body"
    with pytest.raises(UserError, match=r"no document survived.*\d+ of \d+ read/missing_text"):
        run_recipe(tmp_path / "out", table, corpus.folder)
    run, is_finished = judged_run(str(tmp_path / "out"))
    found = report_json(run)
    assert not is_finished
    assert found["stages"][0]["failed"] == found["stages"][0]["seen"] > 0
    assert all(domain["tokens"] == 0 for domain in found["domains"].values())
