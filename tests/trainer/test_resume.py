from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import UserError
from shards.reader import ShardSet
from tests.trainer.synthetic_run import PHASES, write_run
from trainer.checkpoint import Checkpoints
from trainer.config import Job
from trainer.progress import Progress
from trainer.resume import checked_progress, fitted_schedule


def test_a_checkpoint_of_another_training_is_named_with_what_changed(tmp_path: Path, mesh: DeviceMesh) -> None:
    job = Job.load(write_run(tmp_path / "run", documents=60))
    checkpoints = Checkpoints(job.checkpoints_path, keep=1)
    checkpoints.save(Progress(3, 300, 3, {}, job.identity), {})
    checkpoints.wait()
    assert checked_progress(job, checkpoints, "step-00000003").step == 3
    other = replace(job, training=job.training.model_copy(update={"seed": 9, "zero": 0}))
    with pytest.raises(UserError, match="belongs to another training: seed changed since"):
        checked_progress(other, checkpoints, "step-00000003")


def test_a_schedule_of_exact_epochs_is_counted_or_remembered(tmp_path: Path, mesh: DeviceMesh) -> None:
    phases = [{key: value for key, value in phase.items() if key not in ("tokens", "weights")} for phase in PHASES]
    phases = [phase | {"share": share} for phase, share in zip(phases, (0.3, 0.3, 0.4), strict=True)]
    folder = write_run(tmp_path / "run", documents=60, phases=phases, exact_epochs=1)
    job, shards = Job.load(folder), ShardSet.open(folder / "shards")
    counted = fitted_schedule(job, shards, None)
    assert counted.fitted
    remembered = fitted_schedule(job, shards, Progress(1, 1, 1, {}, {}, last_phase_steps=77))
    assert remembered.phases[-1].steps == 77 != counted.phases[-1].steps
