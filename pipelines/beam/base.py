"""What a pass is: a name, the part of the recipe it depends on, units of work, and a Beam pipeline over them.

Every unit publishes its files and then its marker, so a restart skips finished units whatever died, on any runner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import apache_beam as beam

from pipelines.beam.dofn import Step
from pipelines.workspace import Run
from shards.manifest import digest_of

Builder = Callable[[Any], None]
"""Adds a pass's transforms to a ``beam.Pipeline``."""


class Pass(ABC):
    """One pass over the data."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raised when the same input gives other bytes, so that no run mixes both."""
    upstream: ClassVar[tuple[str, ...]] = ()
    units_per_pipeline: ClassVar[int | None] = None
    """How many units one local pipeline takes at most: a bound on memory where units meet in a shuffle."""

    @abstractmethod
    def section(self, run: Run) -> Any:
        """Return the JSON-able part of recipe, models and lists on which this pass's bytes depend."""

    @abstractmethod
    def units(self, run: Run) -> list[str]:
        """Return the names of all units, in order."""

    @abstractmethod
    def builder(self, run: Run, units: Sequence[str]) -> Builder:
        """Return the function that adds this pass's transforms for ``units`` to a pipeline."""

    def weight(self, run: Run, unit: str) -> int:
        """Return the size of a unit for progress, in bytes where ``weighs_bytes`` says so, else in units."""
        return 1

    weighs_bytes: ClassVar[bool] = False

    def digest(self, run: Run) -> str:
        """Return the digest of this pass: own name and version, section, and all files of its upstream passes.

        Their own digests are left out: a change above that changes no byte ends there. So ``upstream`` names every pass
        whose files this one reads, not only the last.
        """
        above = {name: digest_of(run.manifest(name)["units"]) for name in self.upstream}
        return digest_of([self.name, self.version, self.section(run), above])


class UnitPass(Pass):
    """A pass in which a unit needs no other unit: ``Create(units) | Reshuffle | work``."""

    @abstractmethod
    def work(self, run: Run, unit: str) -> None:
        """Do a unit: publish its files and commit its marker."""

    def builder(self, run: Run, units: Sequence[str]) -> Builder:
        """Return ``Create | Reshuffle | work``."""

        def build(pipeline: Any) -> None:
            _ = pipeline | beam.Create(list(units)) | beam.Reshuffle() | beam.ParDo(_Work(self, run))

        return build


class _Work(Step):
    def __init__(self, unit_pass: UnitPass, run: Run) -> None:
        self._pass, self._run = unit_pass, run

    def work(self, unit: str) -> Iterator[Any]:
        self._pass.work(self._run, unit)
        yield from ()


class DriverPass(Pass):
    """A pass of one unit that needs the whole of its input at once, in the driver: cuts, components, the schedule."""

    UNIT: ClassVar[str] = "all"

    def units(self, run: Run) -> list[str]:
        """Return the one unit."""
        return [self.UNIT]

    def builder(self, run: Run, units: Sequence[str]) -> Builder:
        """A driver pass has no pipeline."""
        raise AssertionError(f"{self.name} runs in the driver")

    @abstractmethod
    def work(self, run: Run) -> None:
        """Do it: publish the files and commit the marker of ``UNIT``."""
