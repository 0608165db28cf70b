"""The lengths of all documents of one domain and subset, in one mapped file: what planning and fetching need to know.

Planning a step looks up a few thousand documents that lie anywhere in a domain. Read from the shards themselves, that
opens a file for each of them; read from here, it touches one block of 1 KiB each, whatever the number of shards. The
processes of a node share the mapping, and a block is compared with its checksum when a process first touches it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from shards.errors import IncompleteError
from shards.permute import derive_key, splitmix64

FORMAT: Final = "lengths-v1"

_RUN: Final = 61
"""Documents between two known places: at most so many lengths are added to find where a document begins."""

_RUNS: Final = 4
BLOCK_DOCUMENTS: Final = _RUNS * _RUN

BLOCK: Final = np.dtype(
    [
        ("check", "<u8"),
        # A block that was written in another's place has a matching checksum but the wrong number.
        ("number", "<u8"),
        ("starts", "<u8", (_RUNS,)),
        ("lengths", "<u4", (_RUNS, _RUN)),
    ]
)
"""1 KiB: tokens before each run, and the tokens of each document; zeros behind the last document."""

_HEAD_WORDS: Final = 4
_WORDS: Final = (BLOCK.itemsize - 8) // 4
# Multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is fast", 2014) over 32-bit words. All 64
# bits are kept and the weights are odd, so a single flipped bit always shows; other damage hides with chance 2**-31.
_WEIGHTS: Final = splitmix64(np.arange(_WORDS, dtype=np.uint64)) | np.uint64(1)

_WRITE_BLOCKS: Final = 4_096
_CHECK_BLOCKS: Final = 512
"""Blocks that are compared at once: they stay in the processor's cache."""

Int64Array = npt.NDArray[np.int64]


class LengthIndexWriter:
    """Writes an index from lengths in document order, a few megabytes at a time: the same bytes however they are cut.

    A context manager: the header is written at its end, unless an error ends it.

    Args:
        path: the file to write.
        domain: the domain of the documents.
        subset: "train" or "held_out".
    """

    def __init__(self, path: Path, domain: str, subset: str) -> None:
        self._file: BinaryIO = path.open("wb")
        self._identity = domain, subset
        self._pending = np.empty(0, np.uint32)
        self._blocks = 0
        self.documents = 0
        self.tokens = 0
        # Written last, when the counts are known; until then the file has no valid header.
        self._file.write(bytes(BLOCK.itemsize))

    def add(self, lengths: npt.NDArray[Any]) -> None:
        """Append the lengths of documents, integers of shape (n,), each 0 to 2**32 - 1."""
        self._pending = np.concatenate([self._pending, lengths.astype(np.uint32)])
        whole = len(self._pending) // BLOCK_DOCUMENTS
        if whole >= _WRITE_BLOCKS:
            self._write(whole * BLOCK_DOCUMENTS)

    def __enter__(self) -> LengthIndexWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._write(len(self._pending))
                self._file.seek(0)
                self._file.write(_header(*self._identity, self.documents, self.tokens))

    def _write(self, count: int) -> None:
        lengths, self._pending = self._pending[:count], self._pending[count:]
        blocks = np.zeros(-(-count // BLOCK_DOCUMENTS), BLOCK)
        padded = np.zeros(len(blocks) * BLOCK_DOCUMENTS, np.uint32)
        padded[:count] = lengths
        runs = padded.reshape(-1, _RUN)
        totals = runs.sum(axis=1, dtype=np.uint64)
        blocks["number"] = np.arange(self._blocks, self._blocks + len(blocks))
        blocks["starts"] = (np.uint64(self.tokens) + np.cumsum(totals) - totals).reshape(-1, _RUNS)
        blocks["lengths"] = runs.reshape(-1, _RUNS, _RUN)
        blocks["check"] = _checks(blocks.view("<u4").reshape(len(blocks), _WORDS + 2), *self._identity)
        self._file.write(blocks.tobytes())
        self._blocks += len(blocks)
        self.documents += count
        self.tokens += int(totals.sum())


class LengthIndex:
    """A mapped index.

    Args:
        path: a file that ``LengthIndexWriter`` wrote.
        domain: the domain that it must be of.
        subset: the subset that it must be of.
        documents: the number of documents that it must hold; ``tokens`` the sum of their lengths.

    Raises:
        IncompleteError: if the file is missing, has another size, or its header says something else.
    """

    def __init__(self, path: Path, domain: str, subset: str, documents: int, tokens: int) -> None:
        self._path, self._identity = path, (domain, subset)
        self.documents, self.tokens = documents, tokens
        count = -(-documents // BLOCK_DOCUMENTS)
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                header = file.read(BLOCK.itemsize)
        except OSError as error:
            raise self._damaged(f"cannot be read: {error}") from None
        if size != (count + 1) * BLOCK.itemsize:
            raise self._damaged(f"has {size} bytes, not {(count + 1) * BLOCK.itemsize}")
        if header != _header(domain, subset, documents, tokens):
            raise self._damaged(f"does not begin as an index of {documents} documents in the format {FORMAT}")
        # A plain array over the mapping: indexing np.memmap itself makes a subclass instance each time.
        mapped = np.memmap(path, BLOCK, "r", offset=BLOCK.itemsize) if count else np.zeros(0, BLOCK)
        self._blocks: npt.NDArray[Any] = np.asarray(mapped)
        self._words = self._blocks.view("<u4").reshape(count, BLOCK.itemsize // 4)
        self._starts, self._lengths = self._blocks["starts"], self._blocks["lengths"]
        self._checked = np.zeros(count, np.bool_)

    def lengths(self, documents: Int64Array) -> Int64Array:
        """Return the tokens of documents: int64 in, int64 of the same shape (n,) out.

        Raises:
            IndexError: if there is no such document.
            IncompleteError: if a block is not what was written.
        """
        block, run, place = self._touch(documents)
        return self._lengths[block, run, place].astype(np.int64)

    def places(self, documents: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the tokens before documents, from the first document on, and their own: two of int64, shape (n,).

        Raises:
            IndexError: if there is no such document.
            IncompleteError: if a block is not what was written.
        """
        block, run, place = self._touch(documents)
        lengths = self._lengths[block, run]
        before = np.where(np.arange(_RUN) < place[:, None], lengths, np.uint32(0)).sum(axis=1, dtype=np.int64)
        own = lengths[np.arange(len(place)), place].astype(np.int64)
        return self._starts[block, run].astype(np.int64) + before, own

    def verify(self) -> None:
        """Compare every block with its checksum, and the sum of all lengths with the header.

        Raises:
            IncompleteError: if something is not what was written.
        """
        total = 0
        for begin in range(0, len(self._blocks), _WRITE_BLOCKS):
            part = slice(begin, begin + _WRITE_BLOCKS)
            self._check(np.arange(*part.indices(len(self._blocks))))
            total += int(self._lengths[part].sum(dtype=np.uint64))
        if total != self.tokens:
            raise self._damaged(f"adds up to {total} tokens, not {self.tokens}")

    def _touch(self, documents: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (block, run, place in the run) of documents, in blocks that were compared with their checksums."""
        if documents.size and not (documents.min() >= 0 and documents.max() < self.documents):
            domain, subset = self._identity
            raise IndexError(f"domain {domain!r} has {self.documents} documents in {subset}")
        run, place = np.divmod(documents, _RUN)
        block, run = np.divmod(run, _RUNS)
        new = block[~self._checked[block]]
        if new.size:
            self._check(np.unique(new))
        return block, run, place

    def _check(self, blocks: Int64Array) -> None:
        for begin in range(0, len(blocks), _CHECK_BLOCKS):
            part = blocks[begin : begin + _CHECK_BLOCKS]
            words = self._words[part]
            head = words[:, :_HEAD_WORDS].copy().view("<u8")
            right = (head[:, 0] == _checks(words, *self._identity)) & (head[:, 1] == part.astype(np.uint64))
            if not right.all():
                raise self._damaged(f"has changed since it was written, in block {int(part[~right][0])}")
            self._checked[part] = True

    def _damaged(self, what: str) -> IncompleteError:
        return IncompleteError(
            f"the index of lengths {self._path.name} {what}",
            place=str(self._path),
            remedy="Run 'headrace verify' on the run's folder, which deletes it, and then the recipe again",
        )


def _header(domain: str, subset: str, documents: int, tokens: int) -> bytes:
    value = {"format": FORMAT, "domain": domain, "subset": subset, "documents": documents, "tokens": tokens}
    return json.dumps(value).encode().ljust(BLOCK.itemsize, b"\n")[: BLOCK.itemsize]


def _checks(words: npt.NDArray[np.uint32], domain: str, subset: str) -> npt.NDArray[np.uint64]:
    """Return the checksums of blocks, given as 32-bit words of shape (blocks, words)."""
    seed = np.uint64(derive_key("lengths", domain, subset))
    sums: npt.NDArray[np.uint64] = np.einsum("ij,j->i", words[:, -_WORDS:], _WEIGHTS)
    return sums + seed
