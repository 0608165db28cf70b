"""Watches a source while it is read: what was read is what was planned, and is still there when its split commits.

    watch = Watch(planned, path, place)
    for batch in read(source, watch.open_input, digest): ...
    row = watch.reading(digest.hex)            # travels to whoever commits the split
    confirm(readings([row, ...]), split.sources, input_path, place)

The digest is of bytes as they pass by, so a source that is read from its start to its end costs no second reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa

from pipelines.planning.digests import DIGESTS
from pipelines.planning.probe import Glance, changed, glance, probe_checksum, probe_of, span_digest
from pipelines.planning.sources import PlannedSource
from shards.errors import UserError
from shards.files import open_input

READINGS: Final = pa.schema([*DIGESTS, *(pa.field(name, pa.int64(), nullable=False) for name in Glance._fields)])
"""A row for each source of a split: its digest, and what the file system said of it when it was opened."""


class Watch:
    """One source on its way through a reader.

    Args:
        planned: the source as it was planned.
        path: what the reader opens, a local path or a URI.
        place: the run's folder, for messages.
    """

    def __init__(self, planned: PlannedSource, path: str, place: str) -> None:
        self._planned, self._path, self._place = planned, path, place
        self._glance: Glance | None = None

    def open_input(self, path: str) -> BinaryIO:
        """Open the source for a reader, as ``shards.files.open_input`` does.

        Raises:
            UserError: if it is not the file that was planned.
            OSError: if it is missing or cannot be read.
        """
        self._glance = glance(path)
        raw = open_input(path)
        if self._glance.size != self._planned.size or probe_of(raw, self._planned.size) != self._planned.checksum:
            raw.close()
            raise changed(self._planned.path, self._place)
        raw.seek(0)
        return raw

    def digest(self) -> str:
        """Return the digest of a source that another process has read, of all its bytes as they are now.

        Where it is opened before that process reads it, a change in between is seen when the split commits.

        Raises:
            UserError: if it is not the file that was planned.
            OSError: if it is missing or cannot be read.
        """
        if self._glance is None:
            self.open_input(self._path).close()
        return span_digest(self._path, self._planned.begin, self._planned.end)

    def reading(self, digest: str | None) -> dict[str, Any]:
        """Return a row of ``READINGS``, after the reader came to the end of the source.

        Args:
            digest: of what was read, as ``stages.readers.Digest`` has it.
        """
        if self._glance is None or digest is None:
            raise AssertionError(f"{self._planned.path} was not read to its end")
        return {"source_index": self._planned.index, "digest": digest, **self._glance._asdict()}


def readings(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of ``Watch.reading`` as a table."""
    return pa.Table.from_pylist([dict(row) for row in rows], READINGS)


def confirm(found: pa.Table, sources: Sequence[PlannedSource], input_path: Callable[[str], str], place: str) -> None:
    """Look at the sources of a split once more, before it commits.

    One that the file system says was touched is hashed again. Where it says nothing of times, the probes are compared.

    Args:
        found: the split's ``READINGS``.
        sources: the split's sources.
        input_path: from the path of a source to what can be opened.
        place: the run's folder, for messages.

    Raises:
        UserError: if a source is not what was read any more: then the split must not commit.
    """
    by_index = {source.index: source for source in sources}
    if found.column("source_index").to_pylist() != [source.index for source in sources]:
        raise AssertionError("the readings are not those of the split's sources")
    for row in found.to_pylist():
        planned = by_index[row["source_index"]]
        path = input_path(planned.path)
        try:
            now, before = glance(path), Glance(*(row[name] for name in Glance._fields))
            if now == before and not now.proves_nothing:
                continue
            if now.size == before.size and _is_same(planned, path, row["digest"], now):
                continue
        except OSError:
            # It has gone, which is a change as well.
            pass
        raise UserError(
            f"the source {planned.path!r} changed while it was read",
            place=place,
            remedy="Nothing of its split was kept. Run again once nothing writes to it any more",
        )


def _is_same(planned: PlannedSource, path: str, digest: str, now: Glance) -> bool:
    if now.proves_nothing:
        return probe_checksum(path, planned.size) == planned.checksum
    return span_digest(path, planned.begin, planned.end) == digest
