from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

# Tiny tensors: more threads only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def mesh() -> Iterator[DeviceMesh]:
    """One rank, in this process, over gloo: every collective runs, with nobody else."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()
