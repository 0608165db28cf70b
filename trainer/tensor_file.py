"""Files of a checkpoint: a rank's rows of many tensors, in the safetensors layout, with a digest for each tensor.

The layout is a length, a JSON header and raw bytes, so nothing is unpickled. Which rows of which whole a tensor holds,
and its sha256, are in an index beside it: so a reader checks what it reads, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from shards.errors import IncompleteError
from trainer.parts import Part

_LENGTH_BYTES: Final = 8


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a tensor in a file.

    Attributes:
        shape: shape of the whole tensor; ``first`` is the row that the chunk begins with, ``rows`` their number.
        begin: where its bytes begin in the file; ``size`` is their number.
        sha256: of these bytes, in hex.
    """

    shape: tuple[int, ...]
    first: int
    rows: int
    begin: int
    size: int
    sha256: str

    @classmethod
    def parse(cls, value: Any) -> Chunk:
        """Read a chunk from an index.

        Raises:
            ValueError: if it is not one.
        """
        try:
            chunk = cls(**(value | {"shape": tuple(value["shape"])}))
            numbers = (*chunk.shape, chunk.first, chunk.rows, chunk.begin, chunk.size)
            row_bytes = 4 * int(np.prod(chunk.shape[1:], dtype=object))
            sound = all(type(number) is int and number >= 0 for number in numbers) and isinstance(chunk.sha256, str)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a chunk: {error}") from None
        if (
            not sound
            or not chunk.shape
            or chunk.first + chunk.rows > chunk.shape[0]
            or chunk.rows * row_bytes != chunk.size
        ):
            raise ValueError("a chunk whose numbers contradict each other")
        return chunk


def write_tensors(path: Path, parts: Mapping[str, Part]) -> dict[str, Any]:
    """Write parts into a file, durably, and return their chunks by name, as plain values for JSON.

    A part without rows is left out.
    """
    parts = {name: part for name, part in parts.items() if part.tensor.numel()}
    header: dict[str, Any] = {}
    offset = 0
    for name, part in parts.items():
        size = 4 * part.tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(part.tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    chunks = {}
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for name, part in parts.items():
            assert part.tensor.dtype == torch.float32, name
            data, begin = part.tensor.cpu().contiguous().numpy().data.cast("B"), file.tell()
            file.write(data)
            digest = hashlib.sha256(data).hexdigest()
            shape = tuple(part.shape)
            chunks[name] = asdict(Chunk(shape, part.first, len(part.tensor), begin, len(data), digest))
        file.flush()
        os.fsync(file.fileno())
    return chunks


def read_rows(path: Path, chunk: Chunk) -> Tensor:
    """Read a chunk, fp32 of its rows, and compare its bytes with their digest.

    Raises:
        IncompleteError: if they are not what was written.
    """
    data = bytearray(chunk.size)
    with path.open("rb") as file:
        file.seek(chunk.begin)
        read = file.readinto(data)
    if read != chunk.size or hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise IncompleteError(f"{path.name} is not what was written", place=str(path))
    return torch.frombuffer(data, dtype=torch.float32).view(chunk.rows, *chunk.shape[1:])


def overlapping(
    chunks: Mapping[Path, Mapping[str, Chunk]], name: str, part: Part
) -> Iterator[tuple[Path, Chunk, range]]:
    """Yield (file, chunk, rows) for the rows of a part, from whatever files hold them, written by any number of ranks.

    Raises:
        IncompleteError: if the tensor has another shape, or rows are missing.
    """
    wanted, found = part.rows, 0
    for path, held in chunks.items():
        chunk = held.get(name)
        if chunk is None:
            continue
        if chunk.shape != tuple(part.shape):
            what = f"{name} has the shape {chunk.shape} instead of {tuple(part.shape)}"
            raise IncompleteError(what, place=str(path))
        rows = range(max(wanted.start, chunk.first), min(wanted.stop, chunk.first + chunk.rows))
        if len(rows):
            found += len(rows)
            yield path, chunk, rows
    if found != len(wanted):
        raise IncompleteError(f"{len(wanted) - found} of {len(wanted)} rows of {name} are in no file")
