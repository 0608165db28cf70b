"""The list of the shards of one domain and subset: an Arrow table beside the manifest, mapped instead of parsed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.catalog import ShardEntry, Subset, SubsetShards
from shards.errors import IncompleteError
from shards.files import naming
from shards.length_index import LengthIndexWriter
from shards.token_files import damaged, safe_path

LISTING: Final = pa.schema(
    [
        pa.field("tokens", pa.string(), nullable=False),
        pa.field("documents", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("token_count", pa.int64(), nullable=False),
        pa.field("tokens_bytes", pa.int64(), nullable=False),
        pa.field("documents_bytes", pa.int64(), nullable=False),
        pa.field("values_at", pa.int64(), nullable=False),
        pa.field("tokens_sha256", pa.string(), nullable=False),
        pa.field("documents_sha256", pa.string(), nullable=False),
        pa.field("lengths_sha256", pa.string(), nullable=False),
    ]
)
"""Columns of a list of shards: the fields of ``ShardEntry``."""

NO_SHARDS: Final = pa.RecordBatch.from_pylist([], schema=LISTING)
"""The list of a subset without shards."""

_UNKNOWN: Final = -1


@dataclass(frozen=True)
class IndexPaths:
    """The two local files that list the shards of a domain and subset, and how much they list."""

    listing: Path
    lengths: Path
    shards: int
    documents: int
    tokens: int


def write_index(
    folder: Path,
    domain: str,
    subset: Subset,
    entries: Iterable[ShardEntry],
    lengths_of: Callable[[ShardEntry], npt.NDArray[Any]],
) -> IndexPaths:
    """Write the list of shards and the index of lengths of one domain and subset into a folder.

    Args:
        folder: an existing local folder; ``{domain}.{subset}.arrow`` and ``{domain}.{subset}.lengths`` are written.
        domain: the shards' domain.
        subset: the shards' subset.
        entries: the shards, in the order in which their documents are numbered.
        lengths_of: returns the tokens of each document of a shard, integers of shape (rows,).

    Raises:
        ValueError: if lengths are not those that the shard was written with.
    """
    listing, lengths = folder / f"{domain}.{subset}.arrow", folder / f"{domain}.{subset}.lengths"
    rows = []
    with naming(lengths), LengthIndexWriter(lengths, domain, subset) as index:
        for entry in entries:
            found = lengths_of(entry)
            if len(found) != entry.rows or int(found.sum(dtype=np.int64)) != entry.token_count:
                raise ValueError(f"the lengths of {entry.documents} are not those of {entry.tokens}")
            index.add(found)
            rows.append(entry.model_dump())
    with naming(listing), pa.OSFile(str(listing), "wb") as sink, pa.ipc.new_file(sink, LISTING) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=LISTING))
    return IndexPaths(listing, lengths, len(rows), index.documents, index.tokens)


def read_listing(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Return the list of shards in an Arrow file, with the columns of ``LISTING``.

    Raises:
        ValueError: if it is none.
    """
    reader = pa.ipc.open_file(data)
    if reader.num_record_batches != 1 or reader.schema != LISTING:
        raise ValueError("it does not have the columns of a list of shards")
    return reader.get_batch(0)


def entries_of(listing: pa.RecordBatch, rows: Sequence[int] | None = None) -> list[ShardEntry]:
    """Return shards of a list, by default all of them."""
    found: list[Mapping[str, Any]] = (listing if rows is None else listing.take(pa.array(rows))).to_pylist()
    return [ShardEntry(**row) for row in found]


def open_listing(folder: Path, said: SubsetShards) -> pa.RecordBatch:
    """Return the list of shards that a manifest names, mapped, with the columns of ``LISTING``.

    Raises:
        IncompleteError: if it is missing, or not what was written.
        UserError: if its path leads out of the folder.
    """
    path = safe_path(folder, said.listing.path)
    try:
        data = pa.memory_map(str(path)).read_buffer()
        if hashlib.sha256(data).hexdigest() != said.listing.sha256:
            raise damaged_listing(path, "is not what was written: its content has changed since")
        listing = read_listing(data)
    except (OSError, ValueError) as error:
        if isinstance(error, IncompleteError):
            raise
        raise damaged_listing(path, f"cannot be read: {error}") from None
    if listing.num_rows != said.shards:
        raise damaged_listing(path, f"lists {listing.num_rows} shards, not {said.shards}")
    return listing


def check_sizes(folder: Path, listings: list[pa.RecordBatch]) -> None:
    """Check that all shards are there in full size: by one look at each folder, because there may be many shards.

    Raises:
        IncompleteError: naming the first shard that is missing, or has another size.
        UserError: if a path leads out of the folder.
    """
    root = folder.resolve()
    found: dict[str, dict[str, int]] = {}
    for listing in listings:
        for kind in ("tokens", "documents"):
            sizes = listing.column(f"{kind}_bytes").to_pylist()
            for relative, size in zip(listing.column(kind).to_pylist(), sizes, strict=True):
                parent, _, name = relative.rpartition("/")
                if parent not in found:
                    found[parent] = dict(_sizes_in(safe_path(folder, parent) if parent else root))
                have = found[parent].get(name, _UNKNOWN)
                if have == _UNKNOWN:
                    path = safe_path(folder, relative)
                    if not path.is_file():
                        raise damaged(path, "is missing")
                    have = path.stat().st_size
                if have != size:
                    raise damaged(root / relative, f"has {have} bytes, not {size}")


def _sizes_in(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield name and size of the files in a folder; links are left out, because they may lead anywhere."""
    if folder.is_dir():
        with os.scandir(folder) as entries:
            yield from ((entry.name, entry.stat().st_size) for entry in entries if entry.is_file(follow_symlinks=False))


def damaged_listing(path: Path, what: str) -> IncompleteError:
    """Return the error of a list of shards that is not what was written."""
    return IncompleteError(
        f"the list of shards {path.name} {what}",
        place=str(path),
        remedy="Run 'headrace verify' on the run's folder, which deletes it, and then the recipe again",
    )
