"""Reading token shards: by domain, subset and document number, and back from a token to its source.

Documents are numbered across a domain's shards in the order of the list: document ``d`` is row ``d - rows before`` of
its shard. Lengths and places come from the index of lengths, so that planning opens no shard, and a token is fetched
by its offset in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.catalog import SUBSETS, ShardCatalog, ShardEntry, Subset
from shards.errors import IncompleteError, UserError
from shards.files import hash_file
from shards.length_index import LengthIndex
from shards.listing import NO_SHARDS, check_sizes, damaged_listing, entries_of, open_listing
from shards.token_files import TokenFiles, damaged, safe_path
from shards.writer import COMPANION, DOCUMENTS_FORMAT, FORMAT_KEY, TOKENS_FORMAT

MAX_OPEN_SHARDS: Final = 400
"""Shards kept mapped at once: each holds a file descriptor, and a process usually may have 1,024."""

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Shelf:
    """The shards of one domain and subset.

    ``first`` and ``tokens_before``, int64 of shape (shards + 1,), are the documents and tokens before each shard.
    """

    listing: pa.RecordBatch
    first: Int64Array
    tokens_before: Int64Array
    index: LengthIndex | None

    def entry(self, shard: int) -> ShardEntry:
        return entries_of(self.listing, [shard])[0]


@dataclass(frozen=True)
class Located:
    """Where documents lie, each int64 of shape (n,): the shard, the first token in it, and the number of tokens."""

    shard: Int64Array
    start: Int64Array
    length: Int64Array


class ShardSet:
    """The token shards of a run, opened with ``ShardSet.open``. Thread-safe."""

    def __init__(self, folder: Path, catalog: ShardCatalog) -> None:
        self.folder = folder
        self.catalog = catalog
        self.domains = tuple(sorted(catalog.domains))
        self.dtype = np.dtype(catalog.token_dtype)
        self._shelves = {
            (domain, subset): self._open_shelf(domain, subset) for domain in self.domains for subset in SUBSETS
        }
        self._files = TokenFiles(folder, self.dtype, MAX_OPEN_SHARDS)

    @classmethod
    def open(cls, folder: Path) -> ShardSet:
        """Open a folder of finished shards.

        Checks that every file is there in its full size; :meth:`verify` checks every byte. Takes microseconds for each
        shard, and nothing for each document.

        Raises:
            IncompleteError: if the manifest or a file is missing, or disagrees with it or has another format.
            UserError: if the manifest names a path outside the folder.
        """
        shards = cls(folder, ShardCatalog.load(folder))
        check_sizes(folder, [shelf.listing for shelf in shards._shelves.values()])
        return shards

    def verify(self, part: int = 0, parts: int = 1) -> int:
        """Read every byte of one of ``parts`` parts of the files and check it against the manifest.

        Returns:
            The number of bytes read.

        Raises:
            IncompleteError: naming the first file that is not what was written.
        """
        read = sum(self._verify_index(*key) for key in list(self._shelves)[part::parts])
        every = [(key, shard) for key, shelf in self._shelves.items() for shard in range(shelf.listing.num_rows)]
        return read + sum(self._verify_shard(*key, shard) for key, shard in every[part::parts])

    def documents(self, domain: str, subset: Subset = "train") -> int:
        """Return the number of documents in a domain."""
        return int(self._shelf(domain, subset).first[-1])

    def token_count(self, domain: str, subset: Subset = "train") -> int:
        """Return the number of tokens in a domain, end-of-text tokens included."""
        return int(self._shelf(domain, subset).tokens_before[-1])

    def entries(self, domain: str, subset: Subset = "train") -> list[ShardEntry]:
        """Return the shards of a domain, in the order in which their documents are numbered."""
        return entries_of(self._shelf(domain, subset).listing)

    def shard_rows(self, domain: str, subset: Subset = "train") -> Int64Array:
        """Return the number of documents in each shard, int64 of shape (shards,)."""
        return np.diff(self._shelf(domain, subset).first)

    def lengths(self, domain: str, subset: Subset, documents: Int64Array) -> Int64Array:
        """Return the tokens of documents, int64 of shape (n,), end-of-text tokens included; no shard is opened.

        Raises:
            IndexError: if there is no such document.
            IncompleteError: if the index of lengths is not what was written.
        """
        index = self._index(domain, subset, documents)
        return np.empty(0, np.int64) if index is None else index.lengths(documents)

    def locate(self, domain: str, subset: Subset, documents: Int64Array) -> Located:
        """Find the shard and place of documents, int64 of shape (n,), by binary search; no shard is opened.

        Raises:
            IndexError: if there is no such document.
            IncompleteError: if the index of lengths is not what was written.
        """
        shelf, index = self._shelf(domain, subset), self._index(domain, subset, documents)
        if index is None:
            empty = np.empty(0, np.int64)
            return Located(empty, empty, empty)
        before, length = index.places(documents)
        shard = np.searchsorted(shelf.first, documents, side="right") - 1
        return Located(shard, before - shelf.tokens_before[shard], length)

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
        All index arrays are int64 of shape (n,). ``out`` has one dimension, and any integer dtype that holds a token;
        that of the shards is fastest.

        Raises:
            IndexError: if a span reaches beyond its document or the buffer.
            IncompleteError: if a shard is missing, or has another size.
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
        listing = self._shelf(domain, subset).listing
        columns = [listing.column(name) for name in ("tokens", "tokens_bytes", "values_at")]
        # In the order of the files, so that each is opened once.
        order = np.argsort(at.shard, kind="stable")
        spans = zip(*(values[order].tolist() for values in (at.shard, at.start + starts, lengths, places)), strict=True)
        for shard, mine in groupby(spans, key=lambda span: span[0]):
            path, size, values_at = (column[shard].as_py() for column in columns)
            self._files.copy(path, size, values_at, [span[1:] for span in mine], out)

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
        shelf, shard = self._shelf(domain, subset), int(at.shard[0])
        entry, row = shelf.entry(shard), document - int(shelf.first[shard])
        companion = _read_batch(safe_path(self.folder, entry.documents))
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

    def _index(self, domain: str, subset: Subset, documents: Int64Array) -> LengthIndex | None:
        """Return the index of a domain that has documents; None if it has none and none is asked for."""
        index = self._shelf(domain, subset).index
        if index is None and documents.size:
            raise IndexError(f"domain {domain!r} has 0 documents in {subset}")
        return index

    def _open_shelf(self, domain: str, subset: Subset) -> _Shelf:
        said = self.catalog.domains[domain].of(subset)
        if said is None:
            return _Shelf(NO_SHARDS, np.zeros(1, np.int64), np.zeros(1, np.int64), None)
        listing = open_listing(self.folder, said)
        rows, tokens = (np.asarray(listing.column(name)) for name in ("rows", "token_count"))
        first, before = (np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]) for counts in (rows, tokens))
        end = np.asarray(listing.column("values_at")) + tokens * self.dtype.itemsize
        if (int(first[-1]), int(before[-1])) != (said.documents, said.tokens) or bool(
            (end > np.asarray(listing.column("tokens_bytes"))).any()
        ):
            raise damaged_listing(safe_path(self.folder, said.listing.path), "does not add up")
        path = safe_path(self.folder, said.lengths.path)
        return _Shelf(listing, first, before, LengthIndex(path, domain, subset, said.documents, said.tokens))

    def _verify_index(self, domain: str, subset: Subset) -> int:
        said = self.catalog.domains[domain].of(subset)
        if said is None:
            return 0
        for file in (said.listing, said.lengths):
            path = safe_path(self.folder, file.path)
            if hash_file(path) != (file.sha256, file.size):
                raise damaged_listing(path, "does not have the checksum of its content")
        return said.listing.size + said.lengths.size

    def _verify_shard(self, domain: str, subset: Subset, shard: int) -> int:
        shelf = self._shelf(domain, subset)
        entry, read = shelf.entry(shard), 0
        for relative, digest in ((entry.tokens, entry.tokens_sha256), (entry.documents, entry.documents_sha256)):
            path = safe_path(self.folder, relative)
            found, size = hash_file(path)
            if found != digest:
                raise damaged(path, "does not have the checksum of its content")
            read += size
        _, offsets = self._check(domain, subset, entry)
        lengths = self.lengths(domain, subset, np.arange(shelf.first[shard], shelf.first[shard + 1]))
        if not np.array_equal(np.diff(offsets), lengths):
            raise damaged(safe_path(self.folder, entry.tokens), "has documents of other lengths than the index says")
        return read

    def _check(self, domain: str, subset: Subset, entry: ShardEntry) -> tuple[npt.NDArray[Any], Int64Array]:
        """Check shape and metadata of a shard, and return its tokens, of shape (tokens,), and offsets."""
        identity = {"domain": domain, "tokenizer": self.catalog.tokenizer, "subset": subset}
        for relative, format_name in ((entry.tokens, TOKENS_FORMAT), (entry.documents, DOCUMENTS_FORMAT)):
            path = safe_path(self.folder, relative)
            batch = _read_batch(path)
            _check_metadata(path, batch, {FORMAT_KEY: format_name, **identity})
            if batch.num_rows != entry.rows:
                raise damaged(path, f"has {batch.num_rows} documents, not {entry.rows}")
            if format_name == DOCUMENTS_FORMAT and batch.schema.remove_metadata() != COMPANION:
                raise damaged(path, "does not have the columns of a companion")
        path = safe_path(self.folder, entry.tokens)
        values, offsets = _map_tokens(path)
        if values.dtype != self.dtype or len(values) != entry.token_count:
            found = f"{len(values)} tokens of {values.dtype}"
            raise damaged(path, f"has {found}, not {entry.token_count} of {self.dtype}")
        return values, offsets


def _read_batch(path: Path) -> pa.RecordBatch:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.num_record_batches != 1:
            raise damaged(path, f"has {reader.num_record_batches} record batches, not one")
        return reader.get_batch(0)
    except pa.ArrowException as error:
        raise damaged(path, f"is not an Arrow file ({error})") from None


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
        raise damaged(path, f"says it is {found}, not {wanted}")


def _map_tokens(path: Path) -> tuple[npt.NDArray[Any], Int64Array]:
    batch = _read_batch(path)
    kinds = (pa.large_list(pa.uint16()), pa.large_list(pa.uint32()))
    if batch.schema.names != ["tokens"] or batch.schema.field(0).type not in kinds or batch.column(0).null_count:
        raise damaged(path, "does not have the single column of a token shard")
    column = batch.column(0)
    offsets = column.offsets.to_numpy()
    values = column.values.to_numpy(zero_copy_only=True)
    if offsets[0] != 0 or offsets[-1] != len(values):
        raise damaged(path, f"has offsets from {offsets[0]} to {offsets[-1]} over {len(values)} tokens")
    return values, offsets
