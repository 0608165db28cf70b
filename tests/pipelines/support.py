"""What is done to the folders of runs under test, and how they are compared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.driver import judged_run
from pipelines.plan import Plan
from pipelines.planning.sources import SOURCES, SourceTable
from pipelines.planning.splits import make_splits
from pipelines.recipe import Recipe
from pipelines.run import Run
from shards.finished import DIGESTS_FILE
from shards.manifest import PassFolder
from shards.marker import COLUMNS, Marker, markers_in, small_table
from shards.store import UNFINISHED, Store

VARYING = {"timings.json", "costs", ".lock", "seen.arrow"}
"""Files and folders that tell how a run went, and so are other with every run."""


class Silent:
    """A reporter that says nothing."""

    def begin(self, name: str, total: int, done: int, *, is_bytes: bool) -> None:
        pass

    def advance(self, done: int) -> None:
        pass

    def end(self, note: str) -> None:
        pass


def finished_run(root: Path) -> Run:
    """Return the run of a folder whose passes are all finished."""
    run, is_finished = judged_run(str(root))
    assert is_finished
    return run


def content(root: Path) -> dict[str, bytes]:
    """Return every file of a run that must not vary, by relative path."""
    files = {path.relative_to(root): path for path in root.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if not VARYING & set(name.parts)}


def redone(made: Any) -> set[str]:
    """Return the passes that were not left as they were."""
    return set(made.notes.ended) - made.notes.unchanged


def flip(path: Path, at: float = 0.5, bit: int = 0) -> None:
    """Flip one bit of a file, so far in."""
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1 << bit
    path.write_bytes(data)


def unfold(root: Path, name: str, digest: str) -> list[Path]:
    """Turn a pass's manifest back into its units' markers, as a kill before its end would leave them."""
    folder = PassFolder(Store(root), name, digest)
    survey = folder.survey()
    for row in map(survey.row, survey.rows):
        (marker,) = markers_in(row)
        tables = {
            field.name: small_table(row, field.name).drop_columns(["unit"]).cast(pa.schema(list(field.type.value_type)))
            for field in list(row.schema)[len(COLUMNS) :]
        }
        folder.commit(Marker(marker.unit, marker.files, marker.statistics, tables))
    shutil.rmtree(root / name / "manifest")
    (root / folder.index_path).unlink()
    return sorted((root / UNFINISHED / name / "markers").iterdir())


def forget(root: Path, name: str) -> None:
    """Leave of a pass what a run holds that was killed before the pass had marked a unit."""
    (root / DIGESTS_FILE).unlink()
    (root / name / "manifest.json").unlink()
    shutil.rmtree(root / name / "manifest")


def plan_of(count: int, recipe: Recipe, *, per_split: int = 1) -> Plan:
    """Return a plan of so many small sources, of which so many are a split, without a file on disk.

    They are of the recipe's ``[[sources]]`` tables in turn.
    """
    assert recipe.split_bytes % per_split == 0
    size = recipe.split_bytes // per_split
    columns = {
        "index": range(count),
        "path": [f"{number}.jsonl" for number in range(count)],
        "begin": [0] * count,
        "end": [size] * count,
        "size": [size] * count,
        "checksum": [bytes(16)] * count,
        "cut_as": [None] * count,
    }
    sources = SourceTable(pa.table({name: list(values) for name, values in columns.items()}, schema=SOURCES))
    active = np.arange(count, dtype=np.int32)
    return Plan(sources, make_splits(sources, active, active % len(recipe.sources), recipe))
