from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import cost_files
from pipelines.cost_files import Cost, UnitCosts
from pipelines.inspection.costs import PassCosts, costs, costs_json
from shards.store import Store

CHAIN = ["read", "mark_v1", "write"]


def recorded(root: Path, units: Sequence[UnitCosts], name: str = "judge") -> Store:
    store = Store(root)
    for unit in units:
        cost_files.write(store, name, unit)
    return store


def unit_of(number: int, seconds: Sequence[int], peak: int = 0) -> UnitCosts:
    stages = {name: Cost(s * 10**9, 0, 2 * s * 10**9, 1, 10, 10, 1_000) for name, s in zip(CHAIN, seconds, strict=True)}
    return UnitCosts(f"{number:05d}", "d", peak_bytes=peak, is_peak_of_unit=True, stages=stages)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.integers(0, 99), min_size=3, max_size=3), min_size=1, max_size=6), st.booleans())
def test_sums_and_slowest_units_are_those_of_the_records(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[list[int]], is_folded: bool
) -> None:
    units = [unit_of(number, each, peak=each[0]) for number, each in enumerate(seconds)]
    store = recorded(tmp_path_factory.mktemp("run"), units)
    if is_folded:
        cost_files.fold(store, "judge", "d", [unit.unit for unit in units])
    (found,) = costs(store, ["judge"], {"judge": 12.5})
    assert [stage.name for stage in found.stages] == CHAIN
    for place, stage in enumerate(found.stages):
        mine = [each[place] for each in seconds]
        assert stage.cpu_seconds == sum(mine)
        assert stage.wall_seconds == 2 * sum(mine)
        assert (stage.units, stage.rows, stage.total.bytes) == (len(units), 10 * len(units), 1_000 * len(units))
        assert (stage.slowest.unit, stage.slowest.cpu_seconds) == (f"{mine.index(max(mine)):05d}", max(mine))
        assert stage.per_cpu_second(stage.rows) == (10 * len(units) / sum(mine) if sum(mine) else None)
    totals = [sum(each) for each in seconds]
    assert found.cpu_seconds == sum(totals)
    assert (found.slowest.unit, found.slowest.cpu_seconds) == (f"{totals.index(max(totals)):05d}", max(totals))
    assert found.median_cpu_seconds == np.median(totals)
    assert (found.units, found.peak_bytes) == (len(units), max(each[0] for each in seconds))
    assert (found.is_peak_of_units, found.elapsed_seconds) == (True, 12.5)


def test_work_before_a_shuffle_comes_first_and_is_no_unit(tmp_path: Path) -> None:
    drops = [UnitCosts(f"{n:05d}", "d", stages={"drops": Cost(n)}) for n in range(3)]
    keys = [UnitCosts(f"{n:05d}", "d", is_shared=True, stages={"keys": Cost(7)}) for n in range(5)]
    (found,) = costs(recorded(tmp_path, [*drops, *keys]), [], {})
    assert [(stage.name, stage.units) for stage in found.stages] == [("keys", 5), ("drops", 3)]
    assert (found.units, found.slowest.unit) == (3, "00002")
    assert found.cpu_seconds == pytest.approx((35 + 3) / 1e9)


def test_work_before_a_shuffle_that_did_not_come_to_a_unit_is_shown(tmp_path: Path) -> None:
    (found,) = costs(recorded(tmp_path, [UnitCosts("s", "d", is_shared=True, stages={"keys": Cost(7)})]), [], {})
    assert (found.units, found.slowest.unit, found.elapsed_seconds) == (0, "s", None)


def test_passes_are_in_the_order_of_the_run(tmp_path: Path) -> None:
    for name in ("zeal", "judge", "anew", "decide"):
        store = recorded(tmp_path, [unit_of(0, [1, 1, 1])], name)
    assert [one.name for one in costs(store, ["judge", "decide", "write"], {})] == ["judge", "decide", "anew", "zeal"]


def test_plain_values_say_the_same(tmp_path: Path) -> None:
    found = costs(recorded(tmp_path, [unit_of(0, [1, 2, 3])]), [], {})
    value = json.loads(json.dumps(costs_json(found)))
    assert value["cpu_seconds"] == 6.0
    (judge,) = value["passes"]
    assert set(judge) == set(PassCosts.__dataclass_fields__) | {"cpu_seconds"}
    assert [stage["cpu_seconds"] for stage in judge["stages"]] == [1.0, 2.0, 3.0]
    assert judge["stages"][1]["slowest"] == {"unit": "00000", "cpu_seconds": 2.0}
    assert judge["stages"][1]["rows_per_cpu_second"] == 5.0
    assert costs_json([]) == {"cpu_seconds": 0, "passes": []}
