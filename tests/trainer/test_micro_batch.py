from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import DeviceMesh

from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from tests.trainer.synthetic_run import write_run
from trainer.batch import IGNORE, Batch, micro_batches
from trainer.micro_batch import Tally, filled, masked, mean_loss, most_per_rank, pinned
from trainer.stream import Stream

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    folder = write_run(tmp_path_factory.mktemp("run") / "run")
    schedule = Schedule.from_json((folder / "schedule.json").read_bytes())
    return Stream(ShardSet.open(folder / "shards"), schedule, 0).batch(0)


@given(rows=st.integers(1, 60), size=st.integers(1, 9), ranks=st.integers(1, 7))
@settings(deadline=None)
def test_every_rank_runs_as_many_as_any_and_no_row_twice(rows: int, size: int, ranks: int) -> None:
    shares = [micro_batches(rows, size, rank, ranks) for rank in range(ranks)]
    most = most_per_rank(rows, size, ranks)
    assert max(map(len, shares)) == most
    assert [row for share in shares for part in share for row in range(rows)[part]] == list(range(rows))


def test_a_masked_micro_batch_predicts_nothing(mesh: DeviceMesh) -> None:
    assert all(batch.plan.targets == 0 for batch in (masked(32), masked(4096)))
    assert masked(32).tokens.shape == (1, 32)
    assert masked(1 << 20).tokens.shape[1] < 1024
    assert (masked(8).document == -1).all()


def test_pinned_arrays_are_the_same_and_lie_in_what_was_pinned(batch: Batch) -> None:
    pinned_at: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned_at.append(tensor.clone())
        return pinned_at[-1]

    copy = pinned(batch, pin)
    arrays = [(b.tokens, b.targets, b.document, b.positions) for b in (copy, batch)]
    for tensor, mine, theirs in zip(pinned_at, *arrays, strict=True):
        assert np.array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
        assert torch.from_numpy(mine).data_ptr() == tensor.data_ptr()
    assert copy.plan is batch.plan


def test_filling_adds_masked_ones_at_the_end(batch: Batch) -> None:
    whole = filled([batch], 3, 32)
    assert whole[0] is batch
    assert [(b.targets == IGNORE).all() for b in whole] == [False, True, True]
    assert filled([batch], 1, 32) == [batch]


def test_losses_are_tallied_by_domain(batch: Batch, mesh: DeviceMesh) -> None:
    losses = torch.rand(batch.tokens.shape, generator=torch.Generator().manual_seed(0))
    losses[torch.from_numpy(batch.targets) == IGNORE] = 0.0
    tally = Tally(batch.plan.domains, CPU)
    tally.add(batch, losses)
    tally.add(masked(32), torch.zeros(1, 32))
    found = tally.reduce()
    for index, domain in enumerate(batch.plan.domains):
        mine = (batch.domain == index)[:, None] & (batch.targets != IGNORE)
        assert found[domain][1] == mine.sum()
        assert found[domain][0] == pytest.approx(losses.numpy()[mine].astype(np.float64).mean(), rel=1e-6)
    count = batch.plan.targets
    assert sum(targets for _, targets in found.values()) == count == (batch.targets != IGNORE).sum()
    assert mean_loss(found) == pytest.approx(float(losses.double().sum()) / count, rel=1e-6)


def test_nothing_has_no_mean(mesh: DeviceMesh) -> None:
    tally = Tally(("web",), CPU)
    tally.add(masked(8), torch.zeros(1, 8))
    assert tally.reduce() == {}
    assert math.isnan(mean_loss({}))


def test_domains_without_targets_are_left_out(mesh: DeviceMesh, batch: Batch, tmp_path: Path) -> None:
    tally = Tally((*batch.plan.domains, "empty"), CPU)
    tally.add(batch, torch.ones(batch.tokens.shape))
    assert set(tally.reduce()) <= set(batch.plan.domains)
