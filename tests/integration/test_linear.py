"""What each pass costs by the split: store calls, bytes read and shuffled elements, the same of few splits and of many.

Beyond what a run of one split costs, no split may cost more than 1.1 times as much in a larger run as in a smaller.
Counts are exact and repeat; times are for ``tests/bench``. 1,000 splits take minutes: they are asked for by
``HEADRACE_SPLITS=1,10,100,1000``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

from pipelines import driver, tables
from pipelines.beam.base import BeamPass, UnitPass
from pipelines.beam.runners import LocalRunner
from pipelines.beam.work_list import Unit
from pipelines.driver import check, curate
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from shards.store import Store
from tests.pipelines.conftest import edited, sentences
from tests.pipelines.support import Silent

pytestmark = pytest.mark.integration

SPLITS = tuple(int(count) for count in os.environ.get("HEADRACE_SPLITS", "1,30,100").split(","))
MOST = 1.1

Costs = Mapping[str, Counter[str]]
shuffled = Counter[str]()


class CountElements(beam.DoFn):  # type: ignore[misc]
    """Counts what goes into a shuffle."""

    def process(self, element: Any) -> Iterator[Any]:
        """Count an element and pass it on."""
        shuffled["elements"] += 1
        yield element


class CountedFile:
    """A file that counts the bytes that are read of it."""

    def __init__(self, file: Any, cost: Counter[str]) -> None:
        self._file, self._cost = file, cost

    def read(self, count: int = -1) -> bytes:
        """Read, and count."""
        found: bytes = self._file.read(None if count < 0 else count)
        self._cost["bytes"] += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Quick:
    """Runs units that need no shuffle directly, the others on Beam."""

    def run(self, work: BeamPass, job: Any, inputs: Any, units: Any, poll: Callable[[], None]) -> None:
        if isinstance(work, UnitPass):
            for unit in work.roots(inputs, units):
                # As on a worker of its own: what a process reads once, each of many reads.
                for cache in (tables.shared_table, tables.shared_column, tables.shared_rows):
                    cache.cache_clear()
                work.work(job, Unit.from_json(unit.to_json()))
        else:
            LocalRunner(1).run(work, job, inputs, units, lambda: None)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[str]]:
    """The costs of each pass of the next run, by name: calls of the store, bytes opened, elements shuffled."""
    costs: dict[str, Counter[str]] = {}
    at = ["plan"]

    def counting(name: str) -> None:
        original = getattr(Store, name)

        def call(store: Store, *arguments: Any, **keywords: Any) -> Any:
            found = original(store, *arguments, **keywords)
            cost = costs.setdefault(at[0], Counter())
            cost["calls"] += 1
            # Of a file of blocks a unit reads its own.
            return pa.PythonFile(CountedFile(found, cost), "r") if name == "open" else found

        monkeypatch.setattr(Store, name, call)

    for name in ("open", "exists", "size", "sizes", "write_bytes", "publish", "delete", "delete_folder"):
        counting(name)
    original_make, original_expand = driver.make, beam.GroupByKey.expand

    def make(work: Any, *arguments: Any) -> bool:
        at[0] = work.name
        shuffled.clear()
        done = original_make(work, *arguments)
        costs[work.name]["elements"] += shuffled["elements"]
        return done

    def expand(transform: Any, collection: Any) -> Any:
        number = len(collection.pipeline.applied_labels)
        seen = collection | f"count {number}" >> beam.ParDo(CountElements()).with_output_types(collection.element_type)
        return original_expand(transform, seen)

    monkeypatch.setattr(driver, "make", make)
    monkeypatch.setattr(beam.GroupByKey, "expand", expand)
    return costs


def write_splits(folder: Path, count: int) -> None:
    """Write so many files, each a split: a text, its near duplicate, its copy, and others."""
    for number in range(count):
        text = sentences(number, 60)
        texts = [text, edited(text, 1, number), text, *(sentences(10**6 * other + number, 60) for other in (1, 2))]
        lines = [
            json.dumps({"url": f"http://site.example/{number:06d}/{row}", "text": t}) for row, t in enumerate(texts)
        ]
        (folder / f"part-{number:06d}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "reference.txt").write_text("\n".join(sentences(9000 + i, 24) for i in range(80)), encoding="utf-8")


def recipe(largest: int) -> dict[str, Any]:
    limit = {"percentile": 2.0, "by": "language"}
    rate = {"shape": "linear", "start": 0.001, "end": 0.0}
    phase = {"name": "base", "share": 1.0, "context_tokens": 32, "batch_tokens": 64, "learning_rate": rate}
    return {
        "split_bytes": largest,
        "sources": [{"glob": "part-*.jsonl"}],
        "lm": [{"language": "und", "corpus": ["reference.txt"], "order": 2}],
        # Ranges are as small as they may be: a small run then has many of them, as a large one has.
        "dedup": {"range_bytes": 4_096},
        "stages": [{"use": "gopher_quality_v2", "min_words": 20}, {"use": "perplexity_v1", "min_perplexity": limit}],
        "tokenizer": {"vocab_size": 400},
        "shards": {"target_bytes": 8_000_000},
        "schedule": {"epochs": 1.0, "phases": [phase]},
    }


def test_a_split_costs_the_same_in_a_small_run_and_in_a_large_one(
    counted: dict[str, Counter[str]], tmp_path: Path
) -> None:
    costs: dict[int, Costs] = {}
    for count in SPLITS:
        folder = tmp_path / f"in-{count}"
        folder.mkdir()
        write_splits(folder, count)
        largest = max(path.stat().st_size for path in folder.glob("part-*"))
        workspace = Workspace.of(str(tmp_path / f"out-{count}"), parse_recipe(recipe(largest), "test"), str(folder))
        counted.clear()
        plan = check(workspace)
        assert len(plan.splits) == count
        curate(workspace, plan, Quick(), Silent())  # type: ignore[arg-type]
        costs[count] = {name: Counter(cost) for name, cost in counted.items()}
    fixed, *growing = SPLITS
    worse: dict[str, list[str]] = {}
    for name in sorted(set(costs[SPLITS[-1]]) - {"plan"}):
        for kind in ("calls", "bytes", "elements"):
            each = [(costs[n][name][kind] - costs[fixed][name][kind]) / (n - fixed) for n in growing]
            # Less than a call, a byte or an element for a hundred splits is no cost of a split.
            if max(each) > MOST * max(min(each[:-1]), 0.01) and each[-1] > MOST * max(min(each[:-1]), 0.01):
                worse.setdefault(name, []).append(f"{kind}: {[round(one, 2) for one in each]}")
    assert not worse
