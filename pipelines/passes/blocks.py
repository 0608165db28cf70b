"""Files of blocks: what a unit gives to each of many others, in one file, of which each of them reads its own block.

    8 bytes     format and version
    8 bytes     number of blocks
    24 bytes    for each block: where it begins, its size, and the XXH3 of its content and number
                the blocks, one behind the other

A block is read with two small requests, whatever the number of blocks, and compared with its hash. What is written is
held in memory up to a bound, and beyond it on the local disk; the bytes of the file do not depend on that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import xxhash

from shards.files import naming
from shards.store import FileEntry, Store
from stages.dedup.order import taken

FORMAT: Final = b"hrblock1"
HEAD: Final = np.dtype([("offset", "<u8"), ("size", "<u8"), ("hash", "<u8")])
_HEAD_AT: Final = 16

BUFFER_BYTES: Final = 32 << 20
"""What is held in memory of blocks that are being written."""


class Blocks:
    """Blocks in the making, in bounded memory. A context manager: it closes its files.

    Args:
        folder: a local folder of its own, for what memory does not hold.
        count: how many blocks there are.
        buffer_bytes: what memory holds.
    """

    def __init__(self, folder: Path, count: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        folder.mkdir(exist_ok=True)
        self.count, self.rows = count, 0
        self._folder, self._buffer_bytes = folder, buffer_bytes
        self._held: dict[int, list[bytes]] = {}
        self._held_bytes = 0
        self._file: BinaryIO | None = None
        self._spilled: dict[int, list[tuple[int, int]]] = {}
        self._end = 0

    def __enter__(self) -> Blocks:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: npt.NDArray[Any], where: npt.NDArray[np.int64]) -> None:
        """Append rows, a structured array of shape (n,), each to the block that ``where`` names, in their order."""
        ordered, at = rows, where
        if (np.diff(where) < 0).any():
            order = np.argsort(where, kind="stable")
            ordered, at = taken(rows, order), where[order]
        bounds = np.flatnonzero(np.diff(at, prepend=-1, append=self.count))
        for start, end in itertools.pairwise(bounds.tolist()):
            self.append(int(at[start]), ordered[start:end].tobytes(), end - start)

    def append(self, block: int, data: bytes, rows: int) -> None:
        """Append bytes that hold so many rows to a block."""
        if not 0 <= block < self.count:
            raise AssertionError(f"there is no block {block} of {self.count}")
        self._held.setdefault(block, []).append(data)
        self._held_bytes += len(data)
        self.rows += rows
        if self._held_bytes > self._buffer_bytes:
            self._spill()

    def _spill(self) -> None:
        with naming(self._folder / "spill.bin"):
            self._write_spilled()

    def _write_spilled(self) -> None:
        if self._file is None:
            self._file = (self._folder / "spill.bin").open("w+b")
        self._file.seek(self._end)
        for block in sorted(self._held):
            data = b"".join(self._held[block])
            self._file.write(data)
            self._spilled.setdefault(block, []).append((self._end, len(data)))
            self._end += len(data)
        self._held, self._held_bytes = {}, 0

    def pieces(self, block: int) -> Iterator[bytes]:
        """Yield what was appended to a block, in order."""
        for offset, size in self._spilled.get(block, ()):
            assert self._file is not None
            self._file.seek(offset)
            yield self._file.read(size)
        yield from self._held.get(block, ())

    def size(self, block: int) -> int:
        """Return the bytes of a block so far."""
        spilled = sum(size for _, size in self._spilled.get(block, ()))
        return spilled + sum(map(len, self._held.get(block, ())))

    def array(self, block: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a block as an array: in memory if it fits in the buffer, else mapped from a file of its own."""
        if self.size(block) <= self._buffer_bytes:
            return np.frombuffer(b"".join(self.pieces(block)), dtype)
        path = self._folder / f"block-{block}.bin"
        with naming(path), path.open("wb") as out:
            for piece in self.pieces(block):
                out.write(piece)
        mapped = np.asarray(np.memmap(path, dtype, "r"))
        # The mapping keeps what it shows; the name would stay until the folder goes.
        path.unlink()
        return mapped

    def publish(self, store: Store, folder: str, stem: str) -> FileEntry:
        """Write the blocks into one file, publish it, and return its entry."""
        heads = np.zeros(self.count, HEAD)
        path = self._folder / "all.blocks"
        with naming(path), path.open("wb") as out:
            at = _HEAD_AT + heads.nbytes
            out.seek(at)
            for block in sorted({*self._held, *self._spilled}):
                hasher, begin = xxhash.xxh3_64(seed=block), at
                for piece in self.pieces(block):
                    out.write(piece)
                    hasher.update(piece)
                    at += len(piece)
                heads[block] = begin, at - begin, hasher.intdigest()
            out.seek(0)
            out.write(FORMAT + self.count.to_bytes(8, "little") + heads.tobytes())
        return store.publish(path, folder, stem, self.rows)


def read_block(store: Store, entry: FileEntry, block: int) -> bytes:
    """Return one block of a published file.

    Raises:
        IncompleteError: if the file is missing, or the block is not what was written.
    """
    with store.open(entry.path) as file:
        # Read twice before it is called damaged: what came over a network may have been cut short.
        for _ in range(2):
            at = _HEAD_AT + block * HEAD.itemsize
            if at + HEAD.itemsize > file.size():
                continue
            file.seek(at)
            data = file.read(HEAD.itemsize)
            offset, size, expected = np.frombuffer(data, HEAD)[0].tolist()
            if not size and not offset and not expected:
                return b""
            if offset + size > file.size():
                continue
            file.seek(offset)
            found: bytes = file.read(size)
            if xxhash.xxh3_64_intdigest(found, seed=block) == expected:
                return found
    raise store.damaged(entry.path)
