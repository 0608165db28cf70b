"""The mesh of ranks and the names of its axes: ``dp`` replicates the model's state, ``shard`` divides it.

Both axes are data-parallel: every rank of them takes rows of its own. An axis that is added later for tensors,
contexts, pipelines or experts shares rows, so it takes part in neither :func:`data_rank` nor :func:`data_ranks`.
"""

from __future__ import annotations

from typing import Final

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import UserError
from shards.training import TrainSettings

DP: Final = "dp"
SHARD: Final = "shard"


def named(ranks: DeviceMesh, training: TrainSettings) -> DeviceMesh:
    """Return the mesh (dp, shard) of a one-dimensional mesh of ranks.

    ZeRO 0 divides nothing, so all ranks lie along ``dp``. Otherwise ``training.shard_ranks`` consecutive ranks share
    the state (by default all of them), and the groups of them are replicas: hybrid sharding (HSDP).

    Raises:
        UserError: if ``training.shard_ranks`` does not divide the number of ranks.
    """
    size = ranks.size()
    shared = training.ranks_per_replica(size)
    if size % shared:
        raise UserError(
            f"{size} rank(s) cannot be divided into groups of {shared}",
            place="training.shard_ranks",
            remedy="Choose a divisor of the number of ranks, or leave it out to share the state among all of them",
        )
    return DeviceMesh(ranks.device_type, ranks.mesh.view(-1, shared), mesh_dim_names=(DP, SHARD))


def data_rank(mesh: DeviceMesh) -> int:
    """Return the place of this rank among those that take rows, from 0."""
    return mesh.get_local_rank(DP) * mesh.size(1) + mesh.get_local_rank(SHARD)


def data_ranks(mesh: DeviceMesh) -> int:
    """Return the number of ranks that take rows."""
    return mesh.size(0) * mesh.size(1)


def is_first_replica(mesh: DeviceMesh) -> bool:
    """Return whether this rank speaks for the state that its replicas hold as well."""
    return mesh.get_local_rank(DP) == 0


def shard_group(mesh: DeviceMesh) -> dist.ProcessGroup | None:
    """Return the ranks that divide the state with this one; None if it holds all of the state."""
    return mesh.get_group(SHARD) if mesh.size(1) > 1 else None
