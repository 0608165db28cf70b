"""List files: one path or URI a line. Millions of them are read one after another."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

import pyarrow as pa

from shards.errors import UserError
from shards.files import open_input
from stages.readers.detect import compression_of

MAX_LINE_BYTES: Final = 32 << 10
"""A longer line is not a path: the file is something else."""


def listed(list_path: str, shown: str) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, path) of every line that is not empty. There are no comments: ``#`` begins a name.

    Args:
        list_path: the list, UTF-8, plain or compressed with gzip or zstd; a local path or a URI.
        shown: the list as the recipe names it, for messages.

    Raises:
        UserError: if it cannot be read, or holds something else than paths.
    """
    number = 0
    try:
        with open_input(list_path) as raw, io.BufferedReader(cast(io.RawIOBase, _Plain(raw))) as lines:
            while line := lines.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise _not_a_list(shown, number, f"the line is longer than {MAX_LINE_BYTES} bytes")
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if path := line.rstrip(b"\r\n").decode():
                    yield number, path
    except UnicodeDecodeError as error:
        raise _not_a_list(shown, number, "the line is not UTF-8") from error
    except FileNotFoundError as error:
        raise UserError(
            f"the list {shown!r} is missing", place=list_path, remedy="Fix its path, relative to the recipe's folder"
        ) from error
    except OSError as error:
        raise UserError(
            f"the list {shown!r} cannot be read after line {number}: {error.strerror or error}",
            place=list_path,
            remedy="Fetch or write it again",
        ) from error


class _Plain(io.RawIOBase):
    """The decompressed bytes of a file of pyarrow's as a file of Python's, whose lines can be read with a limit."""

    def __init__(self, raw: BinaryIO) -> None:
        compression = compression_of(raw.read(4))
        raw.seek(0)
        # Unlike Python's own readers, pyarrow's tell a file that was cut from one that ends.
        self._file = raw if compression == "none" else pa.CompressedInputStream(raw, compression)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _not_a_list(shown: str, number: int, why: str) -> UserError:
    return UserError(
        f"{why}, so this is not a list of paths",
        place=f"{shown}, line {number}",
        remedy="Write one path or URI a line, in UTF-8",
    )
