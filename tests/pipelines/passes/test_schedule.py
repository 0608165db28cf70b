from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.passes.schedule import SCHEDULE_FILE, TRAINING_FILE
from shards.errors import UserError
from shards.schedule.schedule import Schedule

VARYING = ("recipe.json", "plan.json", "seen.arrow", "timings.json", "digests.json")


def times(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): path.stat().st_mtime_ns
        for path in root.rglob("*")
        if path.is_file() and path.name not in VARYING
        if path.relative_to(root).parts[0] != "costs"
    }


def with_rate(corpus: Any, start: float) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(json.dumps(corpus.recipe()))
    table["schedule"]["phases"][0]["learning_rate"]["start"] = start
    return table


def test_the_schedule_is_over_the_tokens_of_the_shards(made: Any) -> None:
    schedule = Schedule.from_json((made.root / SCHEDULE_FILE).read_text())
    tokens = made.statistics("catalog")["train"]
    assert dict(zip(schedule.domains, schedule.tokens_per_domain, strict=True)) == tokens
    expected = {"digest": schedule.digest, "steps": schedule.steps, "tokens": schedule.tokens}
    assert made.statistics("schedule") == expected
    assert schedule.tokens <= sum(tokens.values())
    assert set(json.loads((made.root / TRAINING_FILE).read_text())) == {"model", "training"}


def test_a_changed_learning_rate_touches_the_schedule_alone(corpus: Any, run_recipe: Any, copied: Path) -> None:
    before = times(copied)
    notes = run_recipe(copied, with_rate(corpus, 0.002), corpus.folder).notes
    assert set(notes.ended) - notes.unchanged == {"schedule"}
    after = times(copied)
    changed = {path for path in before if after.get(path) != before[path]}
    manifest = {path for path in before if path.startswith("schedule/")}
    assert len(manifest) == 3
    assert changed == {SCHEDULE_FILE, TRAINING_FILE, "plan/run.json", *manifest}
    schedule = Schedule.from_json((copied / SCHEDULE_FILE).read_text())
    assert schedule.phases[0].learning_rate.start == 0.002


def test_a_lost_schedule_is_made_again(corpus: Any, run_recipe: Any, copied: Path) -> None:
    content = (copied / SCHEDULE_FILE).read_bytes()
    (copied / SCHEDULE_FILE).unlink()
    notes = run_recipe(copied, corpus.recipe(), corpus.folder).notes
    assert set(notes.ended) - notes.unchanged == {"schedule"}
    assert (copied / SCHEDULE_FILE).read_bytes() == content


def test_a_schedule_of_another_recipe_is_not_taken_for_this_ones(corpus: Any, run_recipe: Any, copied: Path) -> None:
    content = (copied / SCHEDULE_FILE).read_bytes()
    # What a kill leaves between the file and its marker: another rate, in as many bytes.
    (copied / SCHEDULE_FILE).write_bytes(content.replace(b"0.001", b"0.002"))
    run_recipe(copied, corpus.recipe(), corpus.folder)
    assert (copied / SCHEDULE_FILE).read_bytes() == content


def test_without_a_schedule_there_is_nothing_to_train_on(corpus: Any, run_recipe: Any, copied: Path) -> None:
    notes = run_recipe(copied, corpus.recipe(schedule=None), corpus.folder).notes
    assert notes.unchanged == set(notes.ended)
    assert "schedule" not in notes.ended
    assert not (copied / SCHEDULE_FILE).exists()
    assert not (copied / TRAINING_FILE).exists()
    assert not list((copied / "schedule").rglob("*.*"))


def test_a_weight_of_an_unknown_domain_is_the_users_to_fix(corpus: Any, run_recipe: Any, copied: Path) -> None:
    table = corpus.recipe()
    table["schedule"]["phases"][0]["weights"] = {"bookz": 1.0}
    with pytest.raises(UserError, match=r"the domain 'bookz'.*books, web, wiki"):
        run_recipe(copied, table, corpus.folder)
