"""Writing one token shard: the tokens, and a row-aligned companion that leads from a row to its document.

Both are uncompressed Arrow IPC files of one record batch, so that a reader can map them into memory and compute where a
token lies. Their bytes are a pure function of their content: no clock, metadata in a fixed order, zeroed null slots.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.files import naming

FORMAT_KEY: Final = "headrace.format"
TOKENS_FORMAT: Final = "tokens-v2"
DOCUMENTS_FORMAT: Final = "documents-v2"
MAX_UINT16_VOCABULARY: Final = 1 << 16

COMPANION: Final = pa.schema(
    [
        pa.field("doc_id", pa.int64(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("content_hash", pa.binary(16)),
        pa.field("language", pa.string()),
        pa.field("source_index", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        # Length in tokens, the end-of-text token included.
        pa.field("tokens", pa.int32(), nullable=False),
    ]
)
"""Columns of the companion; all of them except ``tokens`` come from the caller."""


@dataclass(frozen=True)
class ShardFiles:
    """A written shard.

    Attributes:
        tokens_path: the file of tokens; ``documents_path`` is the companion.
        rows: documents.
        tokens: tokens, end-of-text tokens included.
        values_at: where in ``tokens_path`` the first token lies, in bytes; the others follow it.
        lengths_sha256: checksum of the companion's column ``tokens`` as little-endian int32, in hex.
    """

    tokens_path: Path
    documents_path: Path
    rows: int
    tokens: int
    values_at: int
    lengths_sha256: str


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the dtype in which tokens are stored: uint16 up to a vocabulary of 65,536, else uint32."""
    return np.dtype(np.uint16) if vocab_size <= MAX_UINT16_VOCABULARY else np.dtype(np.uint32)


class ShardWriter:
    """Collects documents and writes them as one shard of one domain and subset.

    Holds the shard in memory until ``close``: tokens (2 or 4 bytes each), companion rows (about 60 bytes plus the URL
    each), and a second copy of the companion while writing. The caller bounds this by closing at a target size;
    ``nbytes`` is the size so far.

    Args:
        folder: an existing local folder; ``{name}.tokens.arrow`` and ``{name}.documents.arrow`` are written into it.
        domain: domain of all its documents in the mixture.
        subset: "train" or "held_out".
        vocab_size: size of the vocabulary; every token is below it.
        end_of_text: the token appended to every document.
        tokenizer_digest: identity of the tokeniser, kept in the metadata of both files.
        name: stem of the two file names; the caller may publish them under other names.

    Raises:
        ValueError: if subset or end_of_text is not valid.
    """

    def __init__(
        self,
        folder: Path,
        *,
        domain: str,
        subset: str,
        vocab_size: int,
        end_of_text: int,
        tokenizer_digest: str,
        name: str = "shard",
    ) -> None:
        if subset not in ("train", "held_out"):
            raise ValueError(f"subset {subset!r} is neither train nor held_out")
        if not 0 <= end_of_text < vocab_size:
            raise ValueError(f"end-of-text token {end_of_text} is outside the vocabulary of {vocab_size}")
        self._paths = folder / f"{name}.tokens.arrow", folder / f"{name}.documents.arrow"
        self._metadata = {"domain": domain, "tokenizer": tokenizer_digest, "subset": subset}
        self._vocab_size, self._end_of_text = vocab_size, end_of_text
        self._dtype = token_dtype(vocab_size)
        self._values: list[npt.NDArray[Any]] = []
        self._lengths: list[npt.NDArray[np.int64]] = []
        self._companions: list[pa.RecordBatch] = []
        self.rows = 0
        self.tokens = 0
        self.nbytes = 0

    def add(self, token_values: npt.NDArray[Any], offsets: npt.NDArray[np.int64], documents: pa.RecordBatch) -> None:
        """Append documents, adding an end-of-text token to each.

        Args:
            token_values: integers of shape (tokens,): the documents' tokens one after another.
            offsets: int64 of shape (n + 1,): document i is ``token_values[offsets[i]:offsets[i + 1]]``.
            documents: n rows with the columns of ``COMPANION`` except ``tokens``; other columns are ignored.

        Raises:
            ValueError: if the shapes disagree, a column is missing, or a token lies outside the vocabulary.
        """
        count = documents.num_rows
        if len(offsets) != count + 1:
            raise ValueError(f"{len(offsets)} offsets do not bound {count} documents")
        lengths: npt.NDArray[np.int64] = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
        if count and (lengths.min() < 0 or offsets[0] < 0 or offsets[-1] > len(token_values)):
            raise ValueError(f"the offsets are not ascending inside {len(token_values)} tokens")
        values = token_values[offsets[0] : offsets[-1]]
        if len(values) and not (int(values.min()) >= 0 and int(values.max()) < self._vocab_size):
            raise ValueError(f"a token lies outside the vocabulary of {self._vocab_size}")
        companion = _companion(documents, lengths + 1)
        ended = np.empty(len(values) + count, self._dtype)
        ends = offsets[1:] - offsets[0] + np.arange(count)
        inside = np.ones(len(ended), np.bool_)
        inside[ends] = False
        ended[inside] = values
        ended[ends] = self._end_of_text
        self._values.append(ended)
        self._lengths.append(lengths + 1)
        self._companions.append(companion)
        self.rows += count
        self.tokens += len(ended)
        self.nbytes += ended.nbytes + companion.nbytes

    def close(self) -> ShardFiles:
        """Write both files and return their paths and counts. The writer is empty afterwards."""
        tokens_path, documents_path = self._paths
        rows, tokens = self.rows, self.tokens
        lengths = np.concatenate([np.zeros(1, np.int64), *self._lengths])
        array = pa.LargeListArray.from_arrays(pa.array(np.cumsum(lengths)), pa.array(self._joined()))
        schema = pa.schema(
            [pa.field("tokens", pa.large_list(pa.from_numpy_dtype(self._dtype)), nullable=False)],
            metadata={FORMAT_KEY: TOKENS_FORMAT, **self._metadata},
        )
        _write(tokens_path, pa.RecordBatch.from_arrays([array], schema=schema))
        del array
        schema = COMPANION.with_metadata({FORMAT_KEY: DOCUMENTS_FORMAT, **self._metadata})
        table = pa.Table.from_batches(self._companions, COMPANION).combine_chunks()
        # take() writes clean bitmaps and zeros under nulls, where the content would depend on how batches were made.
        columns = [column.combine_chunks().take(pa.array(np.arange(rows))) for column in table.columns]
        _write(documents_path, pa.RecordBatch.from_arrays(columns, schema=schema))
        self._lengths, self._companions = [], []
        self.rows = self.tokens = self.nbytes = 0
        checksum = lengths_sha256(lengths[1:])
        return ShardFiles(tokens_path, documents_path, rows, tokens, _values_at(tokens_path), checksum)

    def _joined(self) -> npt.NDArray[Any]:
        out = np.empty(self.tokens, self._dtype)
        filled = 0
        # Each part is dropped once it is copied, so that the shard is not in memory twice.
        self._values.reverse()
        while self._values:
            part = self._values.pop()
            out[filled : filled + len(part)] = part
            filled += len(part)
        return out


def lengths_sha256(lengths: npt.NDArray[Any]) -> str:
    """Return the checksum of documents' lengths, in hex: of their values as little-endian int32."""
    return hashlib.sha256(lengths.astype("<i4").tobytes()).hexdigest()


def _values_at(path: Path) -> int:
    """Return where the first token lies in a file of tokens, in bytes."""
    with pa.memory_map(str(path)) as file:
        whole = file.read_buffer()
        values = pa.ipc.open_file(whole).get_batch(0).column(0).values.buffers()[1]
        # Without a token the buffer may be anywhere.
        return int(values.address - whole.address) if values is not None and values.size else 0


def _companion(documents: pa.RecordBatch, lengths: npt.NDArray[np.int64]) -> pa.RecordBatch:
    columns = []
    for field in COMPANION:
        if field.name == "tokens":
            columns.append(pa.array(lengths.astype(np.int32)))
            continue
        if field.name not in documents.schema.names:
            raise ValueError(f"the documents have no column {field.name!r}")
        column = documents.column(field.name).cast(field.type)
        if column.null_count and not field.nullable:
            raise ValueError(f"column {field.name!r} has nulls")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=COMPANION)


def _write(path: Path, batch: pa.RecordBatch) -> None:
    with naming(path), pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
