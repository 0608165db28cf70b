from __future__ import annotations

import os
from pathlib import Path

import pytest

from shards.memory import available_memory, cpus


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 2000000 kB\n"}
V2, V1 = "sys/fs/cgroup/memory.", "sys/fs/cgroup/memory/memory."


@pytest.mark.parametrize(
    ("files", "bytes_free"),
    [
        ({}, None),
        (MEMINFO, 2_048_000_000),
        ({**MEMINFO, V2 + "max": "max\n", V2 + "current": "5\n"}, 2_048_000_000),
        ({**MEMINFO, V2 + "max": "1000000\n", V2 + "current": "600000\n"}, 400_000),
        (
            {V2 + "max": "1000000", V2 + "current": "900000", V2 + "stat": "anon 1\ninactive_file 300000\n"},
            400_000,
        ),
        ({V1 + "limit_in_bytes": "9223372036854771712", V1 + "usage_in_bytes": "5"}, None),
        ({V1 + "limit_in_bytes": "800", V1 + "usage_in_bytes": "900"}, 0),
    ],
)
def test_free_memory_is_the_least_of_machine_and_control_group(
    tmp_path: Path, files: dict[str, str], bytes_free: int | None
) -> None:
    assert available_memory(machine(tmp_path, files)) == bytes_free


V1_QUOTA = "sys/fs/cgroup/{}/cpu.cfs_quota_us", "sys/fs/cgroup/{}/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "garbage\n"}, None),
        ({"sys/fs/cgroup/cpu.max": "100000 0\n"}, None),
        ({V1_QUOTA[0].format("cpu"): "-1\n", V1_QUOTA[1].format("cpu"): "100000\n"}, None),
        ({V1_QUOTA[0].format("cpu"): "100000\n", V1_QUOTA[1].format("cpu"): "100000\n"}, 1),
        ({V1_QUOTA[0].format("cpu,cpuacct"): "100000\n", V1_QUOTA[1].format("cpu,cpuacct"): "50000\n"}, 2),
    ],
)
def test_cpus_are_those_of_the_affinity_within_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], quota: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    assert cpus(machine(tmp_path, files)) == (quota or 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert cpus(machine(tmp_path, files)) == 1


def test_this_machine_knows_its_memory() -> None:
    free = available_memory()
    assert free is None or free > 1 << 20
