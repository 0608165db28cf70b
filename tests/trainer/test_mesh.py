from __future__ import annotations

from typing import Any

import pytest
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import UserError
from shards.training import TrainSettings
from trainer.mesh import data_rank, data_ranks, is_first_replica, named, shard_group


@pytest.mark.parametrize(
    ("settings", "ranks", "shared"),
    [
        ({"zero": 0}, 4, 1),
        ({"zero": 3}, 4, 4),
        ({"zero": 3, "shard_ranks": 2}, 4, 2),
        ({"zero": 0, "shard_ranks": 2}, 4, 1),
    ],
)
def test_the_state_is_divided_as_the_stage_says(settings: dict[str, Any], ranks: int, shared: int) -> None:
    assert TrainSettings(**settings).ranks_per_replica(ranks) == shared


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_one_rank_is_a_whole_mesh(zero: Any, mesh: DeviceMesh) -> None:
    axes = named(mesh, TrainSettings(zero=zero))
    assert axes.mesh_dim_names == ("dp", "shard")
    assert (data_rank(axes), data_ranks(axes), is_first_replica(axes)) == (0, 1, True)
    assert shard_group(axes) is None


def test_ranks_that_cannot_be_divided_are_refused(mesh: DeviceMesh) -> None:
    with pytest.raises(UserError, match=r"1 rank\(s\) cannot be divided into groups of 2") as caught:
        named(mesh, TrainSettings(zero=3, shard_ranks=2))
    assert caught.value.place == "training.shard_ranks"
