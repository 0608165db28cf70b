from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shards.errors import IncompleteError, UserError
from shards.training import ModelSettings, TrainSettings
from tests.trainer.synthetic_run import MODEL, TRAINING, finish, write_run, write_settings
from trainer.config import _FREE, _RESOLVED_AT_START, Job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


def test_a_job_is_read_whole(folder: Path) -> None:
    job = Job.load(folder)
    assert job.model == ModelSettings(**MODEL)
    assert job.training == TrainSettings(**TRAINING)
    assert job.vocabulary == 300
    assert [phase.name for phase in job.schedule.phases] == ["base", "long", "anneal"]
    assert not job.is_finished


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"micro_batch_token": 4}, "Did you mean 'micro_batch_tokens'"),
        ({"beta1": 1.0}, "[training], key beta1"),
        ({"micro_batch_rows": 2}, "micro_batch_tokens or micro_batch_rows, not both"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(folder: Path, change: dict[str, Any], message: str) -> None:
    try:
        write_settings(folder, training=change)
        with pytest.raises(UserError, match=r"train\.json") as caught:
            Job.load(folder)
        assert message in str(caught.value)
    finally:
        write_settings(folder)


@pytest.mark.parametrize("missing", ["train.json", "schedule.json", "shards/manifest.json", "digests.json"])
def test_what_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / missing).unlink()
    with pytest.raises(UserError, match=Path(missing).name.replace(".", r"\.")):
        Job.load(folder)


def test_a_run_that_was_changed_and_killed_is_not_trained_on(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "digests.json").unlink()
    with pytest.raises(IncompleteError, match="not finished") as caught:
        Job.load(folder)
    assert caught.value.remedy.startswith("Run the recipe again")
    write_run(tmp_path / "other", documents=20)
    finish(folder)
    (folder / "shards/manifest.json").write_bytes((tmp_path / "other/shards/manifest.json").read_bytes())
    with pytest.raises(IncompleteError, match="of another recipe"):
        Job.load(folder)


OTHER_VALUES = {
    "seed": 1,
    "precision": "bf16",
    "bf16": "emulated",
    "micro_batch_tokens": 256,
    "micro_batch_rows": 3,
    "window_shards": 4,
    "beta1": 0.8,
    "beta2": 0.9,
    "epsilon": 1e-7,
    "weight_decay": 0.0,
    "clip_norm": 2.0,
    "zero": 1,
    "shard_ranks": 2,
    "reduce_once": True,
    "recompute": "selective",
    "recompute_every": 2,
    "optimizer": "muon",
    "momentum": 0.5,
    "ema_decay": 0.9,
    "z_loss": 1e-4,
    "no_decay": ("*norm*",),
    "attention": "dense",
    "steps_ahead": 0,
    "checkpoint_every_steps": 9,
    "keep_checkpoints": 9,
    "keep_every_steps": 9,
    "asynchronous_checkpoints": False,
    "peak_flops": 1e12,
    "on_spike": "skip",
    "spike_score": 4.0,
    "spike_steps": 2,
    "spike_rollback_steps": 9,
    "max_spikes": 1,
    "evaluate_every_steps": 9,
    "evaluate_tokens": 9,
}


@pytest.mark.parametrize("name", TrainSettings.model_fields)
def test_every_setting_that_changes_the_weights_is_part_of_the_identity(folder: Path, name: str) -> None:
    change: dict[str, Any] = {name: OTHER_VALUES[name]}
    if name == "micro_batch_rows":
        change["micro_batch_tokens"] = None
    needed = {"bf16": {"precision": "bf16"}, "recompute_every": {"recompute": "blocks"}, "reduce_once": {"zero": 2}}
    base = TRAINING | needed.get(name, {})
    job, other = (replace(Job.load(folder), training=TrainSettings(**settings)) for settings in (base, base | change))
    changed = {key for key in job.identity if job.identity[key] != other.identity[key]}
    assert changed == (set() if name in _FREE | _RESOLVED_AT_START else set(change))


def test_identity_covers_model_and_vocabulary_and_ignores_a_default_spelled_out(folder: Path) -> None:
    job = Job.load(folder)
    other = replace(job, model=ModelSettings(**{**MODEL, "layers": 3}))
    assert other.identity["model"] != job.identity["model"]
    assert replace(job, vocabulary=301).identity["model"] != job.identity["model"]
    said = replace(job, training=TrainSettings(micro_batch_tokens=8_192))
    assert said.identity == replace(job, training=TrainSettings()).identity


def test_finished_weights_belong_to_exactly_this_job(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    Job.load(folder).mark_finished(11, None)
    assert Job.load(folder).is_finished
    write_settings(folder, training={"weight_decay": 0.2})
    assert not Job.load(folder).is_finished
    Job.load(folder).remove_weights()
    assert not Job.load(folder).weights_path.exists()


def test_finished_weights_belong_to_the_mode_that_bf16_was_resolved_to(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", training={"precision": "bf16"})
    Job.load(folder).mark_finished(11, "emulated")
    for setting, finished in (("auto", True), ("emulated", True), ("native", False)):
        write_settings(folder, training={"precision": "bf16", "bf16": setting})
        assert Job.load(folder).is_finished == finished
        # What it was resolved to is compared, not what the recipe says.
        assert "bf16" not in Job.load(folder).identity


def test_a_schedule_of_an_older_format_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    path = folder / "schedule.json"
    old = {"version": 1} | {key: value for key, value in json.loads(path.read_text()).items() if key != "version"}
    old["stages"] = old.pop("phases")
    path.write_text(json.dumps(old))
    finish(folder)
    with pytest.raises(UserError, match="has format 1, and this version of headrace reads format 3") as caught:
        Job.load(folder)
    assert (caught.value.place, caught.value.remedy) == (str(path), "Run the recipe again")


def test_what_does_not_fit_is_refused_before_it_starts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    job = Job.load(folder)
    job.require_memory(2, 2 * job.bytes_per_rank(2))
    with pytest.raises(UserError, match="GiB") as caught:
        job.require_memory(2, 2 * job.bytes_per_rank(2) - 1)
    assert "micro_batch_tokens" in str(caught.value)
    disk = job.model.parameters(job.vocabulary) * (12 * (job.training.keep_checkpoints + 1) + 4)
    job.require_disk(disk)
    with pytest.raises(UserError, match=r"of disk.*keep_checkpoints"):
        job.require_disk(disk - 1)
    write_settings(folder, model={"layers": 100, "width": 20_000, "heads": 100})
    assert Job.load(folder).bytes_per_rank(1) > 16 * 100 * 12 * 20_000**2


def test_a_table_of_settings_must_be_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for value in ([], {"model": 3}, {"models": {}}, {"training": [1]}):
        (folder / "train.json").write_text(json.dumps(value))
        finish(folder)
        with pytest.raises(UserError):
            Job.load(folder)
    (folder / "train.json").write_text("{")
    finish(folder)
    with pytest.raises(UserError, match="not JSON"):
        Job.load(folder)
