from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.capacity.estimate import Estimate
from pipelines.capacity.machine import Machine, default_workers, require_capacity, shown_bytes
from shards.errors import UserError

GB = 10**9

NEEDED = Estimate(
    text_bytes=GB, documents=1, disk_bytes=10 * GB, worker_bytes=GB, driver_bytes=GB, training_bytes=5 * GB, workers=3
)


def test_what_fits_is_not_refused() -> None:
    require_capacity(NEEDED, Machine(11 * GB, 5 * GB), "out")
    require_capacity(NEEDED, Machine(None, None), "out")
    require_capacity(NEEDED, Machine(None, None, 4 * GB), "out")
    require_capacity(NEEDED, Machine(3 * GB, 5 * GB), "out", already_bytes=8 * GB)


@pytest.mark.parametrize(
    ("machine", "place", "what", "remedy"),
    [
        (Machine(9 * GB, 50 * GB), "--out out", "10.0 GB of disk, and 9.0 GB are free", "--sample"),
        (Machine(None, 3 * GB), "--workers", "3 worker.s. need about 4.0 GB of memory, and 3.0 GB", "fewer workers"),
        (Machine(None, None, 3 * GB), "ulimit -v", "3.2 GB of addresses.*limited to 3.0 GB", "ulimit -v unlimited"),
        (Machine(50 * GB, 4 * GB), "recipe, keys model", "training needs about 5.0 GB", "--no-train"),
    ],
)
def test_what_does_not_fit_says_how_much_where_and_what_to_do(
    machine: Machine, place: str, what: str, remedy: str
) -> None:
    with pytest.raises(UserError, match=what) as caught:
        require_capacity(NEEDED, machine, "out")
    assert place in caught.value.place
    assert remedy in caught.value.remedy


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 44), st.integers(1, 256))
def test_default_workers_fit_with_the_driver_beside_them(each: int, memory: int, cpus: int) -> None:
    workers = default_workers(each, memory, cpus)
    assert 1 <= workers <= cpus
    assert workers == 1 or (workers + 1) * each <= memory


def test_without_a_figure_for_memory_every_cpu_works() -> None:
    assert default_workers(GB, None, 6) == 6


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_940, "9.9 kB"),
        (12_300, "12 kB"),
        (1_500_000, "1.5 MB"),
        (512_000_000, "512 MB"),
        (999_600_000, "1.0 GB"),
        (3_200_000_000, "3.2 GB"),
        (80 * 10**12, "80.0 TB"),
    ],
)
def test_sizes_are_shown_for_people(value: int, shown: str) -> None:
    assert shown_bytes(value) == shown
