"""*near_components*: the component of every document that is linked to another, by the split of the document.

Up to ``links_in_memory`` links, one worker merges them by union-find, reading them twice; beyond it, the components
come from rounds on Beam, in which no worker holds more than a range of the vertices.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from pipelines.beam.base import ALL, BeamPass, Builder, Inputs
from pipelines.beam.dofn import Step
from pipelines.beam.work_list import Output, Unit
from pipelines.passes.links import read_links
from pipelines.passes.shuffle import SplitGroups, blocks_for, places_of
from pipelines.passes.stars import PIECE_BYTES, rounds_for, stars
from pipelines.workspace import Job
from stages.dedup.components import components_of_chunks
from stages.dedup.near import LINK

LINKS_IN_MEMORY: Final = 100_000_000
"""These have 50 to 100 million documents at their ends, for which union-find holds 1 to 2 GB."""

LINKS_AT_ONCE: Final = 4_000_000

LABEL: Final = np.dtype([("doc_id", "<i8"), ("component", "<i8")])
"""A document, and the smallest doc_id that links lead to from it."""


@dataclass(frozen=True)
class NearComponents(BeamPass):
    """One unit: a file of the labels of all documents in any component, by group of splits.

    Attributes:
        local: links between documents of one split.
        links: links between documents of different splits.
        splits: the splits in groups.
        links_in_memory: most links that one worker merges.
        range_bytes: about the most bytes of links that a worker of a larger run holds.
    """

    name: ClassVar[str] = "near_components"

    local: Output
    links: Output
    splits: SplitGroups
    range_bytes: int
    links_in_memory: int = LINKS_IN_MEMORY

    def section(self) -> Any:
        """Return the splits: how components are found does not show in them."""
        return self.splits.digest

    def units(self, inputs: Inputs) -> list[str]:
        """Return the one unit."""
        return [ALL]

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        """Yield one unit with all links, or where they are too many, one for each file of them."""
        files = {output: tuple(inputs.files(output).values()) for output in (self.local, self.links)}
        if self._count(inputs) <= self.links_in_memory:
            yield Unit(ALL, files)
            return
        for output, entries in files.items():
            for number, entry in enumerate(entries):
                yield Unit(f"{output.of}-{number:05d}", {output: (entry,)})

    def _count(self, inputs: Inputs) -> int:
        return inputs.rows(self.local) + inputs.rows(self.links)

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        """Merge in one worker, or in rounds."""
        groups, count = self.splits.first_sources, self._count(inputs)
        if count <= self.links_in_memory:
            return functools.partial(_add_union, _Union(job, (self.local, self.links), groups))
        ranges = max(1, -(-2 * count * LINK.itemsize // self.range_bytes))
        return functools.partial(_add_rounds, job, groups, ranges, rounds_for(count))


def _add_union(union: _Union, units: Any) -> None:
    _ = units | "merge" >> beam.ParDo(union)


def _add_rounds(job: Job, groups: Sequence[int], ranges: int, rounds: int, units: Any) -> None:
    links = units | "links" >> beam.ParDo(_ReadLinks(job)).with_output_types(bytes)
    # Also where no link is left: the unit ends in a marker all the same.
    begin = units | "begin" >> beam.Map(_nothing).with_output_types(bytes)
    found = (stars(links, ranges, rounds, job.root), begin) | "and none" >> beam.Flatten()
    keyed = found | "all" >> beam.WithKeys(0).with_output_types(tuple[int, bytes])
    _ = keyed | "together" >> beam.GroupByKey() | "labels" >> beam.ParDo(_Labels(job, groups))


def _nothing(_: Unit) -> bytes:
    return b""


class _ReadLinks(Step):
    def __init__(self, job: Job) -> None:
        self._job = job

    def work(self, unit: Unit) -> Iterator[bytes]:
        entries = itertools.chain(*unit.entries.values())
        for links in read_links(self._job.store, entries, PIECE_BYTES // LINK.itemsize):
            yield links.tobytes()


class _Union(Step):
    def __init__(self, job: Job, inputs: Sequence[Output], groups: Sequence[int]) -> None:
        self._job, self._inputs, self._groups = job, tuple(inputs), tuple(groups)

    def work(self, unit: Unit) -> Iterator[Any]:
        entries = [entry for output in self._inputs for entry in unit.files(output)]
        ids, roots = components_of_chunks(lambda: read_links(self._job.store, entries, LINKS_AT_ONCE))
        step = LINKS_AT_ONCE
        parts = (_labels(ids[at : at + step], roots[at : at + step]) for at in range(0, len(ids), step))
        _publish(self._job, parts, self._groups)
        yield from ()


class _Labels(Step):
    def __init__(self, job: Job, groups: Sequence[int]) -> None:
        self._job, self._groups = job, tuple(groups)

    def work(self, keyed: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        _publish(self._job, map(_labels_of_stars, keyed[1]), self._groups)
        yield from ()


def _labels_of_stars(data: bytes) -> npt.NDArray[Any]:
    links = np.frombuffer(data, LINK)
    roots = np.unique(links["a"])
    # A star may lie in several pieces: its centre is then labelled more than once, alike.
    return _labels(np.concatenate([links["b"], roots]), np.concatenate([links["a"], roots]))


def _labels(ids: npt.NDArray[np.int64], roots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    labels = np.empty(len(ids), LABEL)
    labels["doc_id"], labels["component"] = ids, roots
    return labels


def _publish(job: Job, parts: Iterable[npt.NDArray[Any]], groups: Sequence[int]) -> None:
    with blocks_for(job.store, found=len(groups), labels=len(groups)) as (found, labels):
        for part in parts:
            found.add(part, places_of(part["doc_id"], groups))
        for group in range(len(groups)):
            # In an order of their own, each once: parts come in the order in which a runner has them.
            rows = np.sort(found.array(group, LABEL), order="doc_id")
            rows = rows[np.diff(rows["doc_id"], prepend=-1) != 0]
            labels.append(group, rows.tobytes(), len(rows))
        entry = labels.publish(job.store, "near_components/labels", ALL)
    job.commit(ALL, {"labels": entry})
