from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import IncompleteError, UserError
from shards.reader import ShardSet
from shards.schedule.schedule import Intervention, Schedule
from tests.trainer.synthetic_run import PHASES, log, losses, write_run, write_settings
from trainer import resume
from trainer.checkpoint import Checkpoints
from trainer.config import Job
from trainer.loop import DivergedError, Trainer
from trainer.stream import fit


def _clock() -> float:
    return 0.0


def train(folder: Path, mesh: DeviceMesh, steps: int | None = None, *, fresh: bool = False) -> Trainer:
    trainer = Trainer(Job.load(folder), mesh, _clock, fresh=fresh)
    trainer.run(steps)
    return trainer


def copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("bare") / "run")


@pytest.fixture(scope="module")
def straight(bare: Path, tmp_path_factory: pytest.TempPathFactory, mesh: DeviceMesh) -> tuple[Path, Trainer]:
    folder = copy(bare, tmp_path_factory.mktemp("straight") / "run")
    return folder, train(folder, mesh)


def test_the_log_follows_the_schedule(straight: tuple[Path, Trainer]) -> None:
    folder, trainer = straight
    schedule = Schedule.from_json((folder / "schedule.json").read_bytes())
    found = log(folder, "train")
    assert [line["step"] for line in found] == list(range(1, schedule.steps + 1))
    for line in found:
        point = schedule.at_step(line["step"] - 1)
        assert line["learning_rate"] == point.learning_rate
        assert line["context_tokens"] == point.context_tokens
        assert line["tokens"] == point.tokens + point.batch_tokens
        counts = [domain["targets"] for domain in line["domains"].values()]
        assert 0 < sum(counts) < point.batch_tokens
        # Every slot holds padding, or a token with a target, or the last token of a document.
        assert 0 <= line["padding"] < point.batch_tokens - sum(counts)
        assert line["cut_documents"] >= 0
        mean = sum(d["loss"] * d["targets"] for d in line["domains"].values()) / sum(counts)
        assert line["loss"] == pytest.approx(mean, rel=1e-12)
    assert {line["context_tokens"] for line in found} == {32, 64, 128}
    assert sum(line["padding"] for line in found) > 0
    assert sum(line["cut_documents"] for line in found) > 0
    assert trainer.finished


def test_it_learns(straight: tuple[Path, Trainer]) -> None:
    found = losses(straight[0])
    assert found[0] == pytest.approx(5.704, abs=0.05)
    assert found[-1] < found[0] - 0.15


def test_held_out_documents_are_evaluated_at_the_end_of_each_phase(straight: tuple[Path, Trainer]) -> None:
    folder, _ = straight
    found = log(folder, "held_out")
    assert [(line["step"], line["phase"]) for line in found] == [(5, "base"), (8, "long"), (11, "anneal")]
    # The same tokens at every context length: all but the first of each document.
    shards = ShardSet.open(folder / "shards")
    for line in found:
        for domain in shards.domains:
            expected = shards.token_count(domain, "held_out") - shards.documents(domain, "held_out")
            assert line["domains"][domain]["targets"] == expected
    assert found[-1]["domains"]["web"]["loss"] < found[0]["domains"]["web"]["loss"]


def test_resuming_at_every_step_changes_no_byte(
    straight: tuple[Path, Trainer], bare: Path, tmp_path: Path, mesh: DeviceMesh
) -> None:
    folder = copy(bare, tmp_path / "run")
    for step in range(1, 12):
        second = train(folder, mesh, 1)
        assert (second.step, second.finished) == (step, step == 11)
    assert (folder / "train-log.jsonl").read_bytes() == (straight[0] / "train-log.jsonl").read_bytes()
    for name, master in second.engine.sharding.masters.items():
        assert torch.equal(master, straight[1].engine.sharding.masters[name])


def test_steps_after_the_last_checkpoint_are_done_again(
    straight: tuple[Path, Trainer], bare: Path, tmp_path: Path, mesh: DeviceMesh
) -> None:
    folder = copy(bare, tmp_path / "run")
    train(folder, mesh, 7)
    # As after a kill: the checkpoint of step 7 is there without its marker, the log's last line is torn.
    (folder / "checkpoints/step-00000007/COMMITTED.json").unlink()
    with (folder / "train-log.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    train(folder, mesh)
    assert (folder / "train-log.jsonl").read_bytes() == (straight[0] / "train-log.jsonl").read_bytes()


def test_a_stop_ends_the_step_saves_and_changes_nothing(
    straight: tuple[Path, Trainer], bare: Path, tmp_path: Path, mesh: DeviceMesh
) -> None:
    folder = copy(bare, tmp_path / "run")
    # The first call is before the run; an answer during a step is heard once the next one has been queued.
    for asks, ends in (([False, False, True, True], 3), ([True], 3), ([False, True], 4)):
        trainer = Trainer(Job.load(folder), mesh, _clock)
        outcome = trainer.run(None, iter(asks).__next__)
        assert (outcome.step, outcome.finished, outcome.interrupted) == (ends, False, True)
        assert (folder / f"checkpoints/step-{ends:08d}/COMMITTED.json").is_file()
    assert Trainer(Job.load(folder), mesh, _clock).run().finished
    assert (folder / "train-log.jsonl").read_bytes() == (straight[0] / "train-log.jsonl").read_bytes()


def test_a_stop_before_the_first_step_saves_nothing(bare: Path, tmp_path: Path, mesh: DeviceMesh) -> None:
    folder = copy(bare, tmp_path / "run")
    outcome = Trainer(Job.load(folder), mesh, _clock).run(None, lambda: True)
    assert (outcome.step, outcome.interrupted) == (0, True)
    assert not (folder / "checkpoints").exists()


def test_exact_epochs_are_counted_once_and_then_remembered(
    tmp_path: Path, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = [{key: value for key, value in phase.items() if key not in ("tokens", "weights")} for phase in PHASES]
    phases = [phase | {"share": share} for phase, share in zip(phases, (0.3, 0.3, 0.4), strict=True)]
    folder = write_run(tmp_path / "run", phases=phases, exact_epochs=1, training={"window_shards": 1})
    counted: list[dict[str, Any]] = []
    monkeypatch.setattr(resume, "fit", lambda *a, **b: counted.append(b) or fit(*a, **b))
    train(folder, mesh, 2)
    assert counted == [{"window_shards": 1, "keep": folder / "fitted"}]
    assert len(list((folder / "fitted").glob("*.json"))) == 1
    assert (folder / "stream-states.jsonl").read_bytes().count(b"\n") == 1
    state = json.loads((folder / "checkpoints/step-00000002/progress.json").read_bytes())["stream"]
    assert state["window_shards"] == 1
    trainer = train(folder, mesh)
    assert len(counted) == 1
    job = Job.load(folder)
    schedule = fit(ShardSet.open(folder / "shards"), job.schedule, job.training.seed)
    assert trainer.step == schedule.steps
    assert log(folder, "train")[-1]["step"] == schedule.steps
    shards = ShardSet.open(folder / "shards")
    targets = sum(d["targets"] for line in log(folder, "train") for d in line["domains"].values())
    assert targets == sum(shards.token_count(d) - shards.documents(d) for d in shards.domains)


@pytest.mark.parametrize("depth", [0, 3])
def test_steps_read_ahead_change_no_byte(
    bare: Path, straight: tuple[Path, Trainer], tmp_path: Path, mesh: DeviceMesh, depth: int
) -> None:
    folder = copy(bare, tmp_path / "run")
    write_settings(folder, training={"steps_ahead": depth})
    for steps in (3, 1, None):
        train(folder, mesh, steps)
    assert (folder / "train-log.jsonl").read_bytes() == (straight[0] / "train-log.jsonl").read_bytes()


def test_a_shard_that_vanishes_ends_training_with_its_name(bare: Path, tmp_path: Path, mesh: DeviceMesh) -> None:
    trainer = Trainer(Job.load(copy(bare, tmp_path / "run")), mesh, _clock)
    (tmp_path / "run" / "shards" / "web-train.tokens.arrow").unlink()
    with pytest.raises(IncompleteError, match=r"shard web-train\.tokens\.arrow is missing"):
        trainer.run()


def test_only_so_many_checkpoints_are_kept(straight: tuple[Path, Trainer]) -> None:
    names = sorted(path.name for path in (straight[0] / "checkpoints").iterdir())
    assert names == ["step-00000004", "step-00000008", "step-00000011"]


def test_a_checkpoint_of_another_training_is_refused(bare: Path, tmp_path: Path, mesh: DeviceMesh) -> None:
    folder = copy(bare, tmp_path / "run")
    train(folder, mesh, 2)
    write_settings(folder, training={"seed": 1})
    with pytest.raises(UserError, match="seed changed since") as caught:
        train(folder, mesh)
    assert f"headrace train {folder} --fresh" in caught.value.remedy
    # New betas on old moments would be no training that anyone asked for.
    write_settings(folder, training={"beta2": 0.9, "weight_decay": 0.0})
    with pytest.raises(UserError, match="beta2, weight_decay changed since"):
        train(folder, mesh)
    write_settings(folder, training={"seed": 1})
    train(folder, mesh, 1, fresh=True)
    assert len(losses(folder)) == 1
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-00000001"]


def test_micro_batches_change_rounding_only(
    straight: tuple[Path, Trainer], bare: Path, tmp_path: Path, mesh: DeviceMesh
) -> None:
    folder = copy(bare, tmp_path / "run")
    write_settings(folder, training={"micro_batch_tokens": 1024, "zero": 1})
    train(folder, mesh)
    assert losses(folder) == pytest.approx(losses(straight[0]), abs=1e-5)


def test_a_gradient_that_is_not_finite_ends_training(bare: Path, tmp_path: Path, mesh: DeviceMesh) -> None:
    folder = copy(bare, tmp_path / "run")
    trainer = Trainer(Job.load(folder), mesh, _clock)
    trainer.engine.sharding.masters["norm.weight"].fill_(float("nan"))
    trainer.engine.sharding.publish()
    with pytest.raises(DivergedError, match="step 1"):
        trainer.run()
    assert not (folder / "checkpoints").exists()


def test_a_first_loss_far_from_an_untrained_models_is_reported(
    bare: Path, tmp_path: Path, mesh: DeviceMesh, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy(bare, tmp_path / "run")
    train(folder, mesh, 1)
    assert "near ln(vocabulary)" in capsys.readouterr().out
    write_settings(folder, model={"layers": 1, "width": 32, "heads": 2, "init_std": 1.0})
    train(folder, mesh, 1, fresh=True)
    assert "warning: first loss" in capsys.readouterr().out


def test_a_skipped_batch_trains_nothing_but_is_consumed(bare: Path, tmp_path: Path, mesh: DeviceMesh) -> None:
    folder, skipping = copy(bare, tmp_path / "a"), Intervention(kind="skip_batch", from_step=1, until_step=3)
    train(folder, mesh, 1)
    path = folder / "checkpoints/step-00000001"
    (path / "COMMITTED.json").unlink()
    trainer = Trainer(Job.load(folder), mesh, _clock)
    trainer.interventions = (skipping,)
    trainer.run(3)
    before = {name: master.clone() for name, master in trainer.engine.sharding.masters.items()}
    assert [line["step"] for line in log(folder, "skipped")] == [2, 3]
    again = Trainer(Job.load(folder), mesh, _clock)
    assert again.interventions == (skipping,)
    assert all(torch.equal(again.engine.sharding.masters[name], before[name]) for name in before)
    plain = copy(bare, tmp_path / "b")
    train(plain, mesh, 4)
    again.run(1)
    served = [[d["targets"] for d in log(f, "train")[-1]["domains"].values()] for f in (folder, plain)]
    assert served[0] == served[1]


def test_bf16_stays_near_fp32(straight: tuple[Path, Trainer], bare: Path, tmp_path: Path, mesh: DeviceMesh) -> None:
    folder = copy(bare, tmp_path / "run")
    write_settings(folder, training={"precision": "bf16"})
    train(folder, mesh)
    assert losses(folder) == pytest.approx(losses(straight[0]), abs=2e-2)
    assert losses(folder) != losses(straight[0])


def test_the_phases_fit_the_tests() -> None:
    assert [phase["context_tokens"] for phase in PHASES] == [32, 64, 128]


def test_a_run_can_go_back_to_a_checkpoint_and_on(
    straight: tuple[Path, Trainer], bare: Path, tmp_path: Path, mesh: DeviceMesh
) -> None:
    folder = copy(bare, tmp_path / "run")
    trainer = train(folder, mesh, 7)
    trainer.resume(Checkpoints(folder / "checkpoints", 3).progress("step-00000004"))
    assert trainer.step == 4
    assert trainer.run().finished
    assert (folder / "train-log.jsonl").read_bytes() == (straight[0] / "train-log.jsonl").read_bytes()
    for name, master in trainer.engine.sharding.masters.items():
        assert torch.equal(master, straight[1].engine.sharding.masters[name])


@pytest.mark.parametrize("held", [True, False])
def test_a_damaged_checkpoint_leads_to_the_one_before_or_to_the_start(
    straight: tuple[Path, Trainer], bare: Path, tmp_path: Path, mesh: DeviceMesh, capsys: Any, held: bool
) -> None:
    folder = copy(bare, tmp_path / "run")
    train(folder, mesh, 8)
    for step in (4, 8) if not held else (8,):
        path = folder / f"checkpoints/step-{step:08d}/rank-00000-of-00001.safetensors"
        data = bytearray(path.read_bytes())
        data[-9] ^= 4
        path.write_bytes(data)
    train(folder, mesh)
    out = capsys.readouterr().out
    assert "checkpoint step-00000008 is damaged" in out
    assert ("resuming from checkpoint step-00000004" in out) == held
    assert (folder / "train-log.jsonl").read_bytes() == (straight[0] / "train-log.jsonl").read_bytes()


def test_the_time_of_a_step_is_its_own(bare: Path, tmp_path: Path, mesh: DeviceMesh) -> None:
    folder, ticks = copy(bare, tmp_path / "run"), iter(range(1_000_000))
    trainer = Trainer(Job.load(folder), mesh, lambda: float(next(ticks)))
    trainer.run(4)
    timings = [json.loads(line) for line in (folder / "train-timings.jsonl").read_text().splitlines()]
    # Four looks at the clock, two to queue a step and two to wait for it: no step has the time of another.
    assert [line["seconds"] for line in timings] == [2.0] * 4
