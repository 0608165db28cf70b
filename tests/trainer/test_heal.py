"""A training that meets poisoned documents, recovers, and names them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from shards.reader import ShardSet
from tests.shards.small_shards import tokens_of
from tests.trainer.synthetic_run import log, losses, write_run, write_settings
from trainer.blame import documents, plan_of
from trainer.config import Job
from trainer.loop import DivergedError, Trainer

STEPS, POISONED = 90, 70
PHASE = {
    "name": "base",
    "tokens": STEPS * 256,
    "context_tokens": 32,
    "batch_tokens": 256,
    "learning_rate": {"shape": "constant", "start": 1e-2},
}
HEALING = {
    "checkpoint_every_steps": 10,
    "keep_checkpoints": 1,
    "evaluate_tokens": 0,
    "on_spike": "skip",
    # So short a run still remembers the losses of its beginning; no other step scores above 2.
    "spike_score": 4.0,
    "spike_steps": 2,
    "spike_rollback_steps": 20,
}


def poison(folder: Path) -> list[tuple[str, int]]:
    """Overwrite the documents of two steps with noise, as a broken shard would, and return which they are."""
    shards, job = ShardSet.open(folder / "shards"), Job.load(folder)
    generator = np.random.default_rng(0)
    spoilt = []
    for step in (POISONED, POISONED + 1):
        for span in documents(shards, plan_of(job, shards, step)):
            document = span["row"]  # one shard a domain, so the row is the number of the document
            path = folder / "shards" / span["shard"]
            data, old = path.read_bytes(), tokens_of(shards, span["domain"], "train", document)
            noise = generator.integers(0, 299, len(old)).astype(old.dtype)
            assert data.count(old.tobytes()) >= 1
            path.write_bytes(data.replace(old.tobytes(), noise.tobytes(), 1))
            spoilt.append((span["domain"], document))
    return spoilt


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, int]]]:
    # So many documents that none comes twice.
    folder = write_run(
        tmp_path_factory.mktemp("poisoned") / "run", phases=[PHASE], documents=600, mean_length=40.0, training=HEALING
    )
    return folder, poison(folder)


def train(folder: Path, mesh: DeviceMesh, steps: int | None = None) -> Trainer:
    trainer = Trainer(Job.load(folder), mesh, lambda: 0.0)
    trainer.run(steps)
    return trainer


def test_a_poisoned_shard_is_healed_and_named(
    poisoned: tuple[Path, list[tuple[str, int]]], tmp_path: Path, mesh: DeviceMesh
) -> None:
    bare, spoilt = poisoned
    folder = Path(shutil.copytree(bare, tmp_path / "run"))
    trainer = train(folder, mesh)
    assert trainer.finished
    (change,) = trainer.interventions
    assert (change.kind, change.from_step, change.until_step) == ("skip_batch", POISONED - 2, POISONED + 1)
    assert f"spike from step {POISONED} to {POISONED + 1}; batches " in change.reason
    (healed,) = log(folder, "healed")
    # Back to a checkpoint at least 20 steps before the spike, which retention has kept.
    assert healed["step"] == 40
    assert [line["step"] for line in log(folder, "skipped")] == [POISONED - 1, POISONED, POISONED + 1]
    found = losses(folder)
    # Neighbours hold the ends of two poisoned documents, which is no lasting spike.
    assert max(found[40:]) < 4.0
    assert found[-1] < found[39] + 0.3
    assert [line["step"] for line in log(folder) if line["kind"] in ("train", "skipped")] == list(range(1, STEPS + 1))
    shards, job = ShardSet.open(folder / "shards"), Job.load(folder)
    blamed = [(s["domain"], s["row"]) for s in documents(shards, plan_of(job, shards, POISONED))]
    assert set(blamed) <= set(spoilt)

    # Killed at any moment, it decides alike: also where a kill falls between the spike's first step and its end.
    parts = Path(shutil.copytree(bare, tmp_path / "parts"))
    train(parts, mesh, POISONED)
    again = train(parts, mesh)
    assert again.interventions == trainer.interventions
    assert (parts / "train-log.jsonl").read_bytes() == (folder / "train-log.jsonl").read_bytes()
    for mine, theirs in zip(again.engine.weights(), trainer.engine.weights(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_rate_is_lowered_instead_by_choice_and_after_too_many_it_stops(
    poisoned: tuple[Path, list[tuple[str, int]]], tmp_path: Path, mesh: DeviceMesh
) -> None:
    folder = Path(shutil.copytree(poisoned[0], tmp_path / "run"))
    write_settings(folder, training={**HEALING, "on_spike": "lower_rate", "max_spikes": 1})
    with pytest.raises(DivergedError, match=r"another spike after 1 that were healed .* 'headrace blame"):
        train(folder, mesh)
    assert log(folder, "healed")[0]["change"]["factor"] == 0.9
