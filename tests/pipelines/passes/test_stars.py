from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.beam.dofn import take_noted
from pipelines.passes.stars import rounds_for, stars
from shards.errors import UserError
from stages.dedup.components import forest
from stages.dedup.near import LINK


class Keep(beam.DoFn):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def process(self, data: bytes) -> Any:
        folder = Path(self._folder)
        (folder / f"{len(list(folder.iterdir())):05d}").write_bytes(data)
        return ()


def run(folder: Path, links: np.ndarray, parts: int, ranges: int, rounds: int) -> list[tuple[int, int]]:
    folder.mkdir()
    pieces = [part.tobytes() for part in np.array_split(links, parts)]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    created = pipeline | beam.Create(pieces).with_output_types(bytes)
    _ = stars(created, ranges, rounds, "here") | beam.ParDo(Keep(folder))
    pipeline.run().wait_until_finish()
    found = [row for path in folder.iterdir() for row in np.frombuffer(path.read_bytes(), LINK).tolist()]
    return sorted(found)


def path_of(count: int) -> np.ndarray:
    names = np.random.default_rng(0).permutation(count + 1)
    links = np.empty(count, LINK)
    links["a"], links["b"] = np.minimum(names[:-1], names[1:]), np.maximum(names[:-1], names[1:])
    return links


@pytest.mark.parametrize(("parts", "ranges"), [(1, 1), (7, 3)])
def test_a_pipeline_of_rounds_ends_in_the_star_of_each_component(tmp_path: Path, parts: int, ranges: int) -> None:
    rng = np.random.default_rng(1)
    sparse = np.empty(300, LINK)
    sparse["a"], sparse["b"] = np.sort(rng.integers(2_000, 2_600, (2, 300)), axis=0)
    links = np.concatenate([path_of(1_000), sparse])
    found = run(tmp_path / "out", links, parts, ranges, rounds_for(len(links)))
    assert found == sorted(forest(links).tolist())


@pytest.mark.integration
def test_a_path_of_a_hundred_thousand(tmp_path: Path) -> None:
    links = path_of(100_000)
    found = run(tmp_path / "out", links, 4, 4, rounds_for(len(links)))
    assert found == [(0, vertex) for vertex in range(1, 100_001)]


def test_rounds_that_do_not_suffice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="2 rounds did not finish"):
        run(tmp_path / "out", path_of(1_000), 1, 2, 2)
    # To a person it is told as it was raised.
    noted = take_noted()
    assert isinstance(noted, UserError)
    assert "dedup.threshold" in str(noted)
