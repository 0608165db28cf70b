"""The columns of a document and their types: one place for readers, stages, passes and reports.

A pipeline's elements are ``pyarrow.RecordBatch``es of these columns, plus one column per score. A drop is a mark in
``dropped_by`` and ``reason``; the row itself stays until the pass writes its tables.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 1

UNKNOWN_LANGUAGE: Final = "und"
"""ISO 639-2 code of a document whose language no stage has determined yet."""

MAX_BATCH_DOCUMENTS: Final = 2_000
MAX_BATCH_BYTES: Final = 4 << 20

DOCUMENT: Final = pa.schema(
    [
        # source_index << 32 | record_index: orders documents, survives retries, fits Beam's signed VarInt.
        pa.field("doc_id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        # The raw body of a record whose text has not been extracted yet, and its Content-Type.
        pa.field("payload", pa.binary()),
        pa.field("media_type", pa.string()),
        pa.field("url", pa.string()),
        pa.field("host", pa.string()),
        pa.field("source_index", pa.int32(), nullable=False),
        # Where the record starts in the source: bytes (compressed ones for record-per-member gzip), or rows for tables.
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("date", pa.timestamp("s", tz="UTC")),
        pa.field("language", pa.string(), nullable=False),
        pa.field("domain", pa.string(), nullable=False),
        pa.field("licence", pa.string()),
        pa.field("dropped_by", pa.string()),
        pa.field("reason", pa.string()),
        # The measurement that decided the drop, in the unit of its reason.
        pa.field("value", pa.float64()),
        # True if the record could not be processed; dropped_by and reason then say where and why.
        pa.field("failed", pa.bool_(), nullable=False),
        pa.field("detail", pa.string()),
    ]
)

TEXT_COLUMNS: Final = ("text", "payload")
"""Columns that hold a document's content; the table of verdicts omits them."""


def make_doc_id(source_index: int, record_index: int) -> int:
    """Return the id of a record: its ``source_index`` in the source table, and its ``record_index`` in the container.

    Raises:
        OverflowError: if an index does not fit in its 31 or 32 bits.
    """
    if not (0 <= source_index < 1 << 31 and 0 <= record_index < 1 << 32):
        raise OverflowError(f"source_index {source_index} or record_index {record_index} does not fit in a doc_id")
    return source_index << 32 | record_index


def split_doc_id(doc_id: int) -> tuple[int, int]:
    """Return the (source_index, record_index) of a doc_id."""
    return doc_id >> 32, doc_id & 0xFFFFFFFF
