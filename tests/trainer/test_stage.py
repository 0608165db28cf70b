from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import UserError
from shards.rank_memory import rank_memory
from shards.training import TrainSettings
from tests.trainer.synthetic_run import write_run
from trainer.config import Job
from trainer.stage import choose_stage, free_per_rank

RANKS = 8


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    loaded = Job.load(write_run(tmp_path_factory.mktemp("run") / "run"))
    large = loaded.model.model_copy(update={"width": 1024, "layers": 24, "heads": 8, "ffn_width": 4096})
    return replace(loaded, model=large, training=TrainSettings(zero="auto", micro_batch_rows=1))


def needed(job: Job, stage: Any) -> int:
    training = job.training.model_copy(update={"zero": stage})
    return rank_memory(job.model, training, job.vocabulary, [32, 64, 128], RANKS).total


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_smallest_stage_that_fits_is_taken(job: Job, stage: int) -> None:
    chosen = choose_stage(job, RANKS, needed(job, stage), "cpu")
    assert chosen.job.training.zero == stage
    assert [line.partition(":")[0] for line in chosen.lines] == [f"zero = {n}" for n in range(stage + 1)]
    assert "does not fit" not in chosen.lines[-1]
    assert all("does not fit" in line for line in chosen.lines[:-1])


def test_a_stage_that_was_given_is_kept_with_a_warning_if_it_may_not_fit(job: Job) -> None:
    given = replace(job, training=job.training.model_copy(update={"zero": 2}))
    assert choose_stage(given, RANKS, needed(job, 2), "cpu").lines == ()
    tight = choose_stage(given, RANKS, needed(job, 2) - 1, "cpu")
    assert tight.job.training.zero == 2
    assert tight.lines[0].startswith("warning: zero = 2: ")
    assert choose_stage(given, RANKS, None, "cpu").lines == ()


def test_a_state_that_cannot_fit_is_refused_before_it_is_built(job: Job) -> None:
    with pytest.raises(UserError, match="state alone takes") as caught:
        choose_stage(job, RANKS, 1 << 20, "cpu")
    assert "headrace calc fit" in caught.value.remedy


def test_ranks_of_a_machine_share_its_memory(mesh: DeviceMesh) -> None:
    cpu = torch.device("cpu")
    alone, four = free_per_rank(cpu, {}), free_per_rank(cpu, {"LOCAL_WORLD_SIZE": "4"})
    assert alone is None or (four is not None and four < alone / 2)


def test_settings_are_estimated_at_the_least_until_a_stage_is_chosen() -> None:
    assert TrainSettings(zero="auto").stage == 3
    assert TrainSettings(zero="auto").bytes_per_parameter(4) == TrainSettings(zero=3).bytes_per_parameter(4)
