"""What a pass is: settings and inputs, units of work, and a Beam pipeline or a function of the driver over them.

A pass is a frozen dataclass, built from the recipe. Its fields are the settings on which its bytes depend, and the
``Output``s of other passes that it reads: it can open nothing else. Every unit publishes its files and then its marker,
so a restart skips finished units, whatever died, on any runner.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam.dofn import Step
from pipelines.beam.work_list import Output, UndeclaredInputError, Unit
from pipelines.run import Run
from pipelines.tables import read_table
from pipelines.workspace import Job
from shards.errors import UserError
from shards.manifest import Manifest
from shards.sealed import digest_of
from shards.store import FileEntry

ALL: Final = "all"
"""The one unit of a pass that sees the whole of its input."""

Builder = Callable[[Any], None]
"""Adds a pass's transforms to the PCollection of its roots; picklable, so no closure."""


class NothingLeftError(UserError):
    """No document, or no token, survived so far: there is nothing left to process."""


class Inputs:
    """What the driver may read for a pass: the manifests of the passes above it, limited to those it declares."""

    def __init__(self, run: Run, declared: Sequence[Output]) -> None:
        self._run, self._declared = run, tuple(declared)

    def _manifest(self, output: Output) -> Manifest:
        if output not in self._declared:
            raise UndeclaredInputError(f"{output.kind} of {output.of} is not declared")
        return self._run.manifest(output.of)

    def units(self, output: Output) -> tuple[str, ...]:
        """Return the units of the pass that makes an input, in order."""
        return self._manifest(output).units

    def files(self, output: Output) -> dict[str, FileEntry]:
        """Return the files of an input by unit, in order."""
        return {marker.unit: marker.files[output.kind] for marker in self._manifest(output).by_unit.values()}

    def file(self, output: Output) -> FileEntry:
        """Return the file of an input that is one for the whole run."""
        return self.files(output)[ALL]

    def read(self, output: Output) -> pa.Table:
        """Return the table of an input that is one for the whole run."""
        return read_table(self._run.store, self.file(output))

    def rows(self, output: Output) -> int:
        """Return the rows of all files of an input."""
        return sum(entry.rows for entry in self.files(output).values())

    def statistics(self, output: Output) -> dict[str, Any]:
        """Return a statistic by unit, in order."""
        return {marker.unit: marker.statistics[output.kind] for marker in self._manifest(output).by_unit.values()}

    def table(self, output: Output) -> pa.Table:
        """Return a small table of all units, with the column ``unit``."""
        return self._manifest(output).table(output.kind)

    def of_unit(self, unit: str) -> dict[Output, tuple[FileEntry, ...]]:
        """Return the files of every declared input that belong to a unit: its own, and those of the whole run."""
        found: dict[Output, tuple[FileEntry, ...]] = {}
        for output in self._declared:
            markers = self._manifest(output).by_unit
            marker = markers[unit] if unit in markers else markers.get(ALL)
            # Statistics and small tables are for the driver; a kind that there is not is an error.
            if marker is not None and output.kind not in marker.statistics:
                found[output] = (marker.files[output.kind],)
        return found

    def sources(self, split: str) -> list[list[int]]:
        """Return the sources of a split for ``Labelling.labels``: runs of (first index, count, settings' position)."""
        runs: list[list[int]] = []
        for source in self._run.plan.by_name[split].sources:
            if runs and (source.index, source.settings) == (runs[-1][0] + runs[-1][1], runs[-1][2]):
                runs[-1][1] += 1
            else:
                runs.append([source.index, 1, source.settings])
        return runs

    def splits_of(self, doc_ids: npt.NDArray[np.int64]) -> list[str]:
        """Return the splits that documents come from, in order."""
        return self._run.splits_of(doc_ids)

    def digest(self) -> Mapping[str, str]:
        """Return the digest of every declared input's content.

        The digests of the passes above are left out: a change above that changes no byte ends there.
        """
        return {f"{output.of}/{output.kind}": self._manifest(output).digest(output.kind) for output in self._declared}


@dataclasses.dataclass(frozen=True)
class Pass(ABC):
    """One pass over the data."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raised when the same input gives other bytes, so that no run mixes both."""
    folders: ClassVar[tuple[str, ...]] = ()
    """Folders besides its own in which its units publish files."""
    foreign: ClassVar[tuple[str, ...]] = ()
    """Files in those folders that another pass publishes, and folders in them, each with a slash at its end."""
    files: ClassVar[tuple[str, ...]] = ()
    """Files with fixed names that it publishes."""

    @property
    def inputs(self) -> tuple[Output, ...]:
        """The outputs of other passes that it reads: its fields of that type."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return tuple(value for value in values if isinstance(value, Output))

    def output(self, kind: str) -> Output:
        """Return one of this pass's outputs, for a pass that reads it."""
        return Output(self.name, kind)

    def section(self) -> Any:
        """Return the JSON-able settings on which its bytes depend: by default, all fields that are no inputs."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        settings = {name: value for name, value in values.items() if not isinstance(value, Output)}
        # What holds more than it says of itself, such as a table of labels, has a digest of what counts.
        return {name: getattr(v, "digest", v) for name, v in settings.items()}

    def digest(self, inputs: Inputs) -> str:
        """Return the digest of this pass: own name and version, settings, and the content of its inputs."""
        return digest_of([self.name, self.version, self.section(), inputs.digest()])

    @abstractmethod
    def units(self, inputs: Inputs) -> list[str]:
        """Return the names of all units, in order."""


class DriverPass(Pass):
    """A pass of one unit that needs the whole of its input at once, in the driver: cuts, components, the schedule."""

    def units(self, inputs: Inputs) -> list[str]:
        """Return the one unit."""
        return [ALL]

    @abstractmethod
    def work(self, job: Job, inputs: Inputs) -> None:
        """Do it: publish the files and commit the marker of ``ALL``."""


class BeamPass(Pass):
    """A pass whose units are made by a pipeline."""

    units_per_pipeline: ClassVar[int | None] = None
    """How many units one local pipeline takes at most: a bound on memory where units meet in a shuffle."""
    weighs_bytes: ClassVar[bool] = False
    starts_from_all: ClassVar[bool] = False
    """Whether every pipeline starts from the same roots, whatever units it is to make."""
    calls_native: ClassVar[bool] = False
    """Whether it hands documents to native libraries, which may end their process: then never the driver's own."""

    def weights(self, inputs: Inputs) -> Mapping[str, int]:
        """Return the size of every unit for progress, in bytes where ``weighs_bytes`` says so, else in units."""
        return dict.fromkeys(self.units(inputs), 1)

    @abstractmethod
    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the units from which a pipeline starts that is to make the units ``pending``."""

    @abstractmethod
    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Return the function that adds this pass's transforms to its roots.

        Args:
            job: what workers know.
            inputs: what the driver may read for it.
            pending: the units to make.
        """


class UnitPass(BeamPass):
    """A pass in which a unit needs no other unit of it: ``units | work``."""

    @abstractmethod
    def work(self, job: Job, unit: Unit) -> None:
        """Do a unit: publish its files and commit its marker."""

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield the units themselves, each with its own files of every input and those of the whole run."""
        for name in pending:
            yield Unit(name, inputs.of_unit(name))

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Return ``units | work``."""
        return functools.partial(_add_work, self, job)


def _add_work(unit_pass: UnitPass, job: Job, units: Any) -> None:
    _ = units | "work" >> beam.ParDo(_Work(unit_pass, job))


class _Work(Step):
    def __init__(self, unit_pass: UnitPass, job: Job) -> None:
        self._pass, self._job = unit_pass, job

    def work(self, unit: Unit) -> Iterator[Any]:
        self._pass.work(self._job, unit)
        yield from ()
