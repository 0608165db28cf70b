"""Units of work, and how they reach a worker: the graph names files, and a first DoFn emits the units in them.

A unit carries the entries of all files that it may open, so a worker opens no manifest, and can open nothing else. A
graph that held its units, or an element that held them all, would outgrow what runners take at about 10^6 of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Final, NamedTuple

import apache_beam as beam

from pipelines.beam.dofn import Step
from pipelines.workspace import Job
from shards.store import UNFINISHED, FileEntry, Store

PART_UNITS: Final = 1024
PART_BYTES: Final = 1 << 20
"""A part holds this many units and bytes at most, or one unit: an element is small, and the graph names few."""


class Output(NamedTuple):
    """Something that a pass makes: a kind of file, a statistic, or a small table in its manifest."""

    of: str
    kind: str


class UndeclaredInputError(AssertionError):
    """A pass reached for what it does not declare among its inputs: then its digest would not follow a change there."""


@dataclass(frozen=True)
class Unit:
    """A unit of work: its name, the files that it may open, and what its pass adds (JSON-able)."""

    name: str
    entries: Mapping[Output, Sequence[FileEntry]] = field(default_factory=dict)
    detail: Any = None

    def files(self, output: Output) -> Sequence[FileEntry]:
        """Return the files of an input, in the order of the units that made them.

        Raises:
            UndeclaredInputError: if the pass does not declare this input.
        """
        if output not in self.entries:
            raise UndeclaredInputError(f"{self.name} may not open {output.kind} of {output.of}: it is not declared")
        return self.entries[output]

    def file(self, output: Output) -> FileEntry:
        """Return the one file of an input."""
        (entry,) = self.files(output)
        return entry

    def to_json(self) -> str:
        """Return the unit as a line of JSON."""
        files = [[*output, [astuple(entry) for entry in found]] for output, found in self.entries.items()]
        return json.dumps([self.name, files, self.detail], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> Unit:
        """Return the unit of a line."""
        name, files, detail = json.loads(line)
        entries = {Output(of, kind): tuple(FileEntry(*entry) for entry in found) for of, kind, found in files}
        return cls(name, entries, detail)


def write_parts(store: Store, name: str, units: Iterable[Unit]) -> list[str]:
    """Write the units that a pass is to do, and return the paths of the parts. ``PassFolder.finish`` deletes them."""
    return [
        store.publish_bytes(b"".join(lines), f"{UNFINISHED}/{name}/work", f"{number:05d}", ".jsonl", len(lines)).path
        for number, lines in enumerate(_parts(units))
    ]


def _parts(units: Iterable[Unit]) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    size = 0
    for unit in units:
        line = unit.to_json().encode() + b"\n"
        if lines and (len(lines) == PART_UNITS or size + len(line) > PART_BYTES):
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield lines


def read_part(store: Store, path: str) -> Iterator[Unit]:
    """Yield the units of a part."""
    # Lines of bytes: as text, they would also end at separators that a file's name may hold.
    for line in store.read_named(path).splitlines():
        yield Unit.from_json(line)


class OpenPart(Step):
    """Emits the units of a part."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def work(self, path: str) -> Iterator[Unit]:
        """Yield the units of the part at ``path``."""
        yield from read_part(self._job.store, path)


def units_of(pipeline: Any, job: Job, parts: Sequence[str]) -> Any:
    """Return the PCollection of the units in ``parts``, spread over the workers."""
    return (
        pipeline
        # Its own reshuffle would come with the second part: then names of transforms would follow the number of units.
        | "parts" >> beam.Create(list(parts), reshuffle=False)
        | "open" >> beam.ParDo(OpenPart(job)).with_output_types(Unit)
        | "spread" >> beam.Reshuffle()
    )
