"""What is looked at of an input file: its size and times, a few probes of its content, or all bytes of a span."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

import pyarrow.fs as pafs
import xxhash

from pipelines.planning.places import is_uri
from shards.errors import UserError
from shards.files import file_system, open_input

PROBE_BYTES: Final = 64 << 10
UNKNOWN: Final = -1
_READ_BYTES: Final = 1 << 20
# Looking at files waits for disks and servers, so there are more threads than processors.
_THREADS: Final = 16
_CHUNK: Final = 256

T = TypeVar("T")
R = TypeVar("R")


class Glance(NamedTuple):
    """What a file system says of a file without opening it, -1 for what it does not say.

    ``ctime_ns`` changes with every write, also where a tool sets ``mtime_ns`` back.
    """

    size: int
    mtime_ns: int = UNKNOWN
    ctime_ns: int = UNKNOWN
    inode: int = UNKNOWN

    @property
    def proves_nothing(self) -> bool:
        """Whether a file could be written over without a change in these values."""
        return self.mtime_ns == UNKNOWN

    @classmethod
    def of_stat(cls, found: os.stat_result) -> Glance:
        """Return the glance of a local file."""
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)

    @classmethod
    def of_info(cls, found: pafs.FileInfo) -> Glance:
        """Return the glance of a file elsewhere."""
        return cls(found.size, UNKNOWN if found.mtime_ns is None else found.mtime_ns)


def glance(path: str) -> Glance:
    """Return what the file system says of a local path or URI.

    Raises:
        OSError: if there is no such file.
    """
    if not is_uri(path):
        return Glance.of_stat(os.stat(path))
    fs, place = file_system(path)
    info = fs.get_file_info(place)
    if info.type != pafs.FileType.File:
        raise FileNotFoundError(f"there is no file {path}")
    return Glance.of_info(info)


def probe_checksum(path: str, size: int) -> str:
    """Return the checksum of a file's size and its first, middle and last 64 KiB, 32 hexadecimal digits.

    That names a file before it is read, and notices most replacements; ``span_digest`` notices all of them.
    """
    with open_input(path) as file:
        return probe_of(file, size)


def probe_of(file: BinaryIO, size: int) -> str:
    """Return the ``probe_checksum`` of an open file. Its position is somewhere else afterwards."""
    digest = xxhash.xxh3_128(size.to_bytes(8, "little"))
    if size <= 3 * PROBE_BYTES:
        ranges = [(0, size)]
    else:
        ranges = [(start, PROBE_BYTES) for start in (0, size // 2 - PROBE_BYTES // 2, size - PROBE_BYTES)]
    for start, count in ranges:
        file.seek(start)
        while count and (part := file.read(count)):
            digest.update(part)
            count -= len(part)
    return digest.hexdigest()


def span_digest(path: str, begin: int, end: int) -> str:
    """Return xxh3_128 over the bytes [begin, end) of a file, 32 hexadecimal digits."""
    digest = xxhash.xxh3_128()
    with open_input(path) as file:
        hash_range(file, begin, end, digest)
    return digest.hexdigest()


def hash_range(file: BinaryIO, begin: int, end: int, digest: Any) -> None:
    """Update ``digest`` with the bytes [begin, end) of an open file, as far as it has them."""
    file.seek(begin)
    while begin < end and (part := file.read(min(_READ_BYTES, end - begin))):
        digest.update(part)
        begin += len(part)


def changed(path: str, place: str, others: int = 0) -> UserError:
    """Return the error of a source that is not what this folder read under its name."""
    more = f" (and {others} more)" if others else ""
    return UserError(
        f"the source {path!r} has changed since this folder first read it{more}",
        place=place,
        remedy="Its documents would lose their origin: use a new --out folder, or another file name",
    )


def spread(work: Callable[[Sequence[T]], R], items: Sequence[T], chunk: int = _CHUNK) -> Iterator[R]:
    """Yield ``work`` of consecutive chunks of ``items``, in their order, on several threads.

    A bounded number of chunks is under way, however many there are.
    """
    chunks = (items[start : start + chunk] for start in range(0, len(items), chunk))
    if len(items) <= chunk:
        yield from map(work, chunks)
        return
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="plan") as pool:
        try:
            for part in chunks:
                waiting.append(pool.submit(work, part))
                if len(waiting) >= 2 * _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
