"""Arrow IPC as the wire form of a batch. Beam's default coder would pickle the whole parent of a slice."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders.typecoders import registry


class RecordBatchCoder(beam.coders.Coder):
    """Codes a ``pyarrow.RecordBatch`` as an Arrow IPC stream of one batch, schema metadata included."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        """Return the stream's bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return bytes(sink.getvalue())

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        """Return the batch of a stream."""
        with pa.ipc.open_stream(pa.py_buffer(encoded)) as reader:
            return reader.read_next_batch()

    def is_deterministic(self) -> bool:
        """Tell Beam that equal batches need not have equal bytes: a batch is not a key."""
        return False

    def to_type_hint(self) -> Any:
        """Return the coded type."""
        return pa.RecordBatch


def register() -> None:
    """Make the coder the one for batches, in this process. Idempotent."""
    registry.register_coder(pa.RecordBatch, RecordBatchCoder)
