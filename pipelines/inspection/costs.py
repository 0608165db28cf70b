"""Where the time of a run went: CPU, rows and bytes by pass and stage, slowest units, and peaks of memory.

From the records of ``pipelines.cost_files``, which are of the attempts that finished: what failed or was killed is in
none of them, nor is what Beam does around the stages (start-up, shuffles).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import cost_files
from pipelines.cost_files import COUNTS, Cost
from shards.store import Store


@dataclass(frozen=True)
class Slowest:
    """The unit that took the most CPU, in seconds."""

    unit: str
    cpu_seconds: float


@dataclass(frozen=True)
class StageCosts:
    """What a stage cost, over all units of its pass.

    Attributes:
        name: the stage's.
        total: its costs, summed.
        units: units that it worked on.
        slowest: the unit in which it took the most CPU.
    """

    name: str
    total: Cost
    units: int
    slowest: Slowest

    @property
    def cpu_seconds(self) -> float:
        """CPU-seconds, those of its libraries' threads included unless ``is_lower_bound``."""
        return self.total.cpu_ns / 1e9

    @property
    def is_lower_bound(self) -> bool:
        """Whether it may have taken more CPU, in threads of its libraries."""
        return self.total.thread_ns > 0

    @property
    def wall_seconds(self) -> float:
        """Seconds on the wall, summed over units, which may run beside each other."""
        return self.total.wall_ns / 1e9

    @property
    def rows(self) -> int:
        """Rows that it worked on, or made where it was given a name alone."""
        return self.total.rows_in or self.total.rows_out

    def per_cpu_second(self, amount: float) -> float | None:
        """Return an amount per CPU-second, None where no time was measured."""
        return amount / self.cpu_seconds if self.total.cpu_ns else None

    def to_json(self) -> dict[str, Any]:
        """Return the costs as plain values."""
        return {
            "name": self.name,
            "cpu_seconds": self.cpu_seconds,
            "is_lower_bound": self.is_lower_bound,
            "wall_seconds": self.wall_seconds,
            "rows": self.rows,
            "bytes": self.total.bytes,
            "rows_per_cpu_second": self.per_cpu_second(self.rows),
            "bytes_per_cpu_second": self.per_cpu_second(self.total.bytes),
            "units": self.units,
            "slowest": vars(self.slowest),
        }


@dataclass(frozen=True)
class PassCosts:
    """What a pass cost.

    Attributes:
        name: the pass's.
        stages: its stages, in chain order; work before a shuffle first.
        units: units with a record; work before a shuffle is not one.
        median_cpu_seconds: CPU-seconds of its median unit.
        slowest: the unit that took the most CPU.
        peak_bytes: most memory that a process held while one of its units was in it.
        is_peak_of_units: whether all peaks were measured from their unit's beginning.
        elapsed_seconds: seconds on the driver's clock, start-up and shuffles included; None if it did not finish.
    """

    name: str
    stages: tuple[StageCosts, ...]
    units: int
    median_cpu_seconds: float
    slowest: Slowest
    peak_bytes: int
    is_peak_of_units: bool
    elapsed_seconds: float | None

    @property
    def cpu_seconds(self) -> float:
        """CPU-seconds of all stages."""
        return sum(stage.cpu_seconds for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the costs as plain values."""
        plain = {name: value for name, value in vars(self).items() if name not in ("stages", "slowest")}
        stages = [stage.to_json() for stage in self.stages]
        return {**plain, "cpu_seconds": self.cpu_seconds, "slowest": vars(self.slowest), "stages": stages}


def costs(store: Store, order: Sequence[str], elapsed: Mapping[str, float]) -> list[PassCosts]:
    """Return what the passes of a run cost, those with a record.

    Args:
        store: the run's.
        order: the names of the passes, in the order of the run; others come last.
        elapsed: seconds on the driver's clock, by pass.
    """
    tables = cost_files.read(store)
    names = [*(name for name in order if name in tables), *sorted(set(tables) - set(order))]
    return [pass_costs(name, tables[name], elapsed.get(name)) for name in names]


def pass_costs(name: str, table: pa.Table, elapsed_seconds: float | None = None) -> PassCosts:
    """Return what a pass cost.

    Args:
        name: the pass's.
        table: its records, of ``cost_files.SCHEMA``, with one row at least.
        elapsed_seconds: on the driver's clock.
    """
    places = table.group_by("stage").aggregate([("is_shared", "min"), ("position", "max")])
    ordered = places.sort_by([("is_shared_min", "descending"), ("position_max", "ascending"), ("stage", "ascending")])
    stages = tuple(
        _stage_costs(stage, table.filter(pc.equal(table.column("stage"), stage)))
        for stage in ordered.column("stage").to_pylist()
    )
    owned = table.filter(pc.invert(table.column("is_shared")))
    units, cpu_ns = _cpu_by_unit(owned if owned.num_rows else table)
    return PassCosts(
        name,
        stages,
        units=len(pc.unique(owned.column("unit"))),
        median_cpu_seconds=float(np.median(cpu_ns)) / 1e9,
        slowest=_slowest(units, cpu_ns),
        peak_bytes=pc.max(table.column("peak_bytes")).as_py(),
        is_peak_of_units=pc.all(table.column("is_peak_of_unit")).as_py(),
        elapsed_seconds=elapsed_seconds,
    )


def _stage_costs(name: str, table: pa.Table) -> StageCosts:
    units, cpu_ns = _cpu_by_unit(table)
    total = Cost(**{count: pc.sum(table.column(count)).as_py() for count in COUNTS})
    return StageCosts(name, total, len(units), _slowest(units, cpu_ns))


def _cpu_by_unit(table: pa.Table) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return (units, sorted by name; their CPU in nanoseconds, int64 of the same length)."""
    summed = table.group_by("unit").aggregate([("cpu_ns", "sum")]).sort_by("unit")
    return summed.column("unit").to_pylist(), summed.column("cpu_ns_sum").to_numpy()


def _slowest(units: list[str], cpu_ns: npt.NDArray[np.int64]) -> Slowest:
    most = int(np.argmax(cpu_ns))
    return Slowest(units[most], int(cpu_ns[most]) / 1e9)


def costs_json(passes: Sequence[PassCosts]) -> dict[str, Any]:
    """Return the costs as plain values, for ``headrace inspect --json``; a run without records has no passes."""
    return {"cpu_seconds": sum(one.cpu_seconds for one in passes), "passes": [one.to_json() for one in passes]}
