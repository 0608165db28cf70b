"""Reading token shards: memory-mapped, by domain, subset and document number, and back from a token to its source.

Documents are numbered across a domain's shards in manifest order: document ``d`` is row ``d - rows before`` of its
shard. Opening reads only the ends of files, so it takes time for each shard and none for each document.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.catalog import SUBSETS, ShardCatalog, ShardEntry, Subset
from shards.errors import IncompleteError, UserError
from shards.files import hash_file
from shards.writer import COMPANION, DOCUMENTS_FORMAT, FORMAT_KEY, TOKENS_FORMAT

MAX_OPEN_SHARDS: Final = 400
"""Shards kept mapped at once: each holds one or two file descriptors, and a process usually may have 1,024."""

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Mapped:
    """A shard's tokens in mapped memory: values of shape (tokens,), offsets int64 of shape (rows + 1,)."""

    values: npt.NDArray[Any]
    offsets: Int64Array


@dataclass(frozen=True)
class _Shelf:
    """The shards of one domain and subset; ``first``, int64 of shape (shards + 1,), is the documents before each."""

    entries: tuple[ShardEntry, ...]
    first: Int64Array


@dataclass(frozen=True)
class Located:
    """Where documents lie, each int64 of shape (n,): the shard, the first token in it, and the number of tokens."""

    shard: Int64Array
    start: Int64Array
    length: Int64Array


class ShardSet:
    """The token shards of a run, opened with ``ShardSet.open``. Not thread-safe."""

    def __init__(self, folder: Path, catalog: ShardCatalog) -> None:
        self.folder = folder
        self.catalog = catalog
        self.domains = tuple(sorted(catalog.domains))
        self.dtype = np.dtype(catalog.token_dtype)
        self._shelves = {
            (domain, subset): _Shelf(entries, np.cumsum([0, *(entry.rows for entry in entries)], dtype=np.int64))
            for domain in self.domains
            for subset in SUBSETS
            for entries in (catalog.domains[domain].entries(subset),)
        }
        self._mapped: OrderedDict[str, _Mapped] = OrderedDict()

    @classmethod
    def open(cls, folder: Path) -> ShardSet:
        """Open a folder of finished shards.

        Checks every file's size, shape and metadata against the manifest; :meth:`verify` checks every byte.

        Raises:
            IncompleteError: if the manifest is missing, or a file disagrees with it or has another format.
            UserError: if the manifest names a path outside the folder.
        """
        shards = cls(folder, ShardCatalog.load(folder))
        for (domain, subset), shelf in shards._shelves.items():
            for entry in shelf.entries:
                shards._check(domain, subset, entry)
        return shards

    def verify(self, part: int = 0, parts: int = 1) -> int:
        """Read every byte of one of ``parts`` parts of the files and check it against the manifest.

        Returns:
            The number of bytes read.

        Raises:
            IncompleteError: naming the first file that is not what was written.
        """
        entries = [entry for shelf in self._shelves.values() for entry in shelf.entries]
        read = 0
        for entry in entries[part::parts]:
            for relative, digest in (
                (entry.tokens, entry.tokens_sha256),
                (entry.documents, entry.documents_sha256),
            ):
                found, size = hash_file(self._path(relative))
                if found != digest:
                    raise _damaged(self._path(relative), "does not have the checksum of its content")
                read += size
            if entry.rows and int(np.diff(self._map(entry).offsets).min()) < 0:
                raise _damaged(self._path(entry.tokens), "has offsets that decrease")
        return read

    def documents(self, domain: str, subset: Subset = "train") -> int:
        """Return the number of documents in a domain."""
        return int(self._shelf(domain, subset).first[-1])

    def token_count(self, domain: str, subset: Subset = "train") -> int:
        """Return the number of tokens in a domain, end-of-text tokens included."""
        return sum(entry.token_count for entry in self._shelf(domain, subset).entries)

    def shard_rows(self, domain: str, subset: Subset = "train") -> Int64Array:
        """Return the number of documents in each shard, int64 of shape (shards,)."""
        return np.diff(self._shelf(domain, subset).first)

    def locate(self, domain: str, subset: Subset, documents: Int64Array) -> Located:
        """Find the shard and place of documents, int64 of shape (n,), by binary search.

        Raises:
            IndexError: if there is no such document.
        """
        shelf = self._shelf(domain, subset)
        if documents.size and not (documents.min() >= 0 and documents.max() < shelf.first[-1]):
            raise IndexError(f"domain {domain!r} has {shelf.first[-1]} documents in {subset}")
        shard = np.searchsorted(shelf.first, documents, side="right") - 1
        row = documents - shelf.first[shard]
        start, length = np.empty_like(row), np.empty_like(row)
        for index, members in _by_shard(shard):
            offsets = self._map(shelf.entries[index]).offsets
            start[members] = offsets[row[members]]
            length[members] = offsets[row[members] + 1] - start[members]
        return Located(shard, start, length)

    def gather(
        self,
        domain: str,
        subset: Subset,
        documents: Int64Array,
        starts: Int64Array,
        lengths: Int64Array,
        out: npt.NDArray[Any],
        places: Int64Array,
    ) -> None:
        """Copy spans of documents into a flat buffer.

        ``lengths[i]`` tokens of ``documents[i]``, from its token ``starts[i]``, are copied to ``out[places[i]:]``.
        All index arrays are int64 of shape (n,). ``out`` has one dimension, and any integer dtype that holds a token.

        Raises:
            IndexError: if a span reaches beyond its document or the buffer.
        """
        at = self.locate(domain, subset, documents)
        if len(documents) and not (
            starts.min() >= 0
            and lengths.min() >= 0
            and places.min() >= 0
            and bool((starts + lengths <= at.length).all())
            and int((places + lengths).max()) <= len(out)
        ):
            raise IndexError(f"a span of domain {domain!r} reaches beyond its document or the buffer")
        entries = self._shelf(domain, subset).entries
        first = at.start + starts
        for index, members in _by_shard(at.shard):
            values = self._map(entries[index]).values
            source, target = first[members], places[members]
            # One copy per span beats fancy indexing from about 100 tokens per span, and needs no index array.
            for begin, end, place, stop in zip(
                source.tolist(),
                (source + lengths[members]).tolist(),
                target.tolist(),
                (target + lengths[members]).tolist(),
                strict=True,
            ):
                out[place:stop] = values[begin:end]

    def trace(self, domain: str, subset: Subset, document: int, token: int = 0) -> dict[str, Any]:
        """Trace a token of a document back to its source.

        Returns:
            domain, subset, shard (the file), row, token (in the document), and the columns of the companion: doc_id,
            url, content_hash, language, source_index, offset, tokens.

        Raises:
            IndexError: if there is no such document or token.
        """
        at = self.locate(domain, subset, np.array([document], np.int64))
        if not 0 <= token < at.length[0]:
            raise IndexError(f"document {document} of domain {domain!r} has {at.length[0]} tokens, so no token {token}")
        shelf = self._shelf(domain, subset)
        entry = shelf.entries[int(at.shard[0])]
        row = document - int(shelf.first[int(at.shard[0])])
        companion = _read_batch(self._path(entry.documents))
        place = {"domain": domain, "subset": subset, "shard": entry.tokens, "row": row, "token": token}
        source: dict[str, Any] = companion.slice(row, 1).to_pylist()[0]
        return place | source

    def _shelf(self, domain: str, subset: Subset) -> _Shelf:
        try:
            return self._shelves[domain, subset]
        except KeyError:
            raise UserError(
                f"the shards have no domain {domain!r}",
                place=str(self.folder),
                remedy=f"They have {', '.join(self.domains) or 'none'}",
            ) from None

    def _path(self, relative: str) -> Path:
        return safe_path(self.folder, relative)

    def _map(self, entry: ShardEntry) -> _Mapped:
        mapped = self._mapped.get(entry.tokens)
        if mapped is None:
            mapped = _map_tokens(self._path(entry.tokens))
            self._mapped[entry.tokens] = mapped
            if len(self._mapped) > MAX_OPEN_SHARDS:
                # A mapping stays open while an array still refers to it.
                self._mapped.popitem(last=False)
        else:
            self._mapped.move_to_end(entry.tokens)
        return mapped

    def _check(self, domain: str, subset: Subset, entry: ShardEntry) -> None:
        identity = {"domain": domain, "tokenizer": self.catalog.tokenizer, "subset": subset}
        for relative, size, format_name in (
            (entry.tokens, entry.tokens_bytes, TOKENS_FORMAT),
            (entry.documents, entry.documents_bytes, DOCUMENTS_FORMAT),
        ):
            path = self._path(relative)
            if not path.is_file():
                raise _damaged(path, "is missing")
            if path.stat().st_size != size:
                raise _damaged(path, f"has {path.stat().st_size} bytes, not {size}")
            batch = _read_batch(path)
            _check_metadata(path, batch, {FORMAT_KEY: format_name, **identity})
            if batch.num_rows != entry.rows:
                raise _damaged(path, f"has {batch.num_rows} documents, not {entry.rows}")
            if format_name == DOCUMENTS_FORMAT and batch.schema.remove_metadata() != COMPANION:
                raise _damaged(path, "does not have the columns of a companion")
        mapped = self._map(entry)
        if mapped.values.dtype != self.dtype or len(mapped.values) != entry.token_count:
            raise _damaged(
                self._path(entry.tokens),
                f"has {len(mapped.values)} tokens of {mapped.values.dtype}, not {entry.token_count} of {self.dtype}",
            )


def safe_path(folder: Path, relative: str) -> Path:
    """Return the path of a file that a manifest names, checked to lie inside the manifest's folder.

    Raises:
        UserError: if it is absolute, climbs with "..", or leads outside through a link.
    """
    pure = PurePosixPath(relative)
    root = folder.resolve()
    plain = bool(relative) and "\0" not in relative and not pure.is_absolute() and ".." not in pure.parts
    path = (root / pure).resolve() if plain else root
    if not plain or not path.is_relative_to(root):
        raise UserError(
            f"the manifest names {relative!r}, which is outside its folder",
            place=str(folder),
            remedy="Do not read these shards: their manifest was tampered with",
        )
    return path


def _by_shard(shard: Int64Array) -> list[tuple[int, Int64Array]]:
    """Return (shard, positions of its members) for each shard that occurs, in ascending order."""
    if not len(shard):
        return []
    order = np.argsort(shard, kind="stable")
    cuts = np.flatnonzero(np.diff(shard[order])) + 1
    return [(int(shard[members[0]]), members) for members in np.split(order, cuts)]


def _read_batch(path: Path) -> pa.RecordBatch:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.num_record_batches != 1:
            raise _damaged(path, f"has {reader.num_record_batches} record batches, not one")
        return reader.get_batch(0)
    except pa.ArrowException as error:
        raise _damaged(path, f"is not an Arrow file ({error})") from None


def _check_metadata(path: Path, batch: pa.RecordBatch, wanted: dict[str, str]) -> None:
    found = {key.decode(): value.decode() for key, value in (batch.schema.metadata or {}).items()}
    version, ours = found.get(FORMAT_KEY, ""), wanted[FORMAT_KEY]
    if version != ours and version.partition("-v")[0] == ours.partition("-v")[0]:
        raise IncompleteError(
            f"the shard {path.name} has format {version}, and this version of headrace reads {ours}",
            place=str(path),
            remedy="Run the recipe again: it writes the shards in the new format",
        )
    if found != wanted:
        raise _damaged(path, f"says it is {found}, not {wanted}")


def _map_tokens(path: Path) -> _Mapped:
    batch = _read_batch(path)
    kinds = (pa.large_list(pa.uint16()), pa.large_list(pa.uint32()))
    if batch.schema.names != ["tokens"] or batch.schema.field(0).type not in kinds or batch.column(0).null_count:
        raise _damaged(path, "does not have the single column of a token shard")
    column = batch.column(0)
    offsets = column.offsets.to_numpy()
    values = column.values.to_numpy(zero_copy_only=True)
    if offsets[0] != 0 or offsets[-1] != len(values):
        raise _damaged(path, f"has offsets from {offsets[0]} to {offsets[-1]} over {len(values)} tokens")
    return _Mapped(values, offsets)


def _damaged(path: Path, what: str) -> IncompleteError:
    return IncompleteError(
        f"the shard {path.name} {what}",
        place=str(path),
        remedy="Delete it and run the recipe again: only what is missing is written again",
    )
