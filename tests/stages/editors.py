"""Stages that edit, for tests, in a module that a child process can import."""

from __future__ import annotations

import os
import re
import signal
from typing import ClassVar

import pyarrow as pa

from shards.schema import DOCUMENT
from stages.base import Measured, stage, text_of
from stages.checks import Check
from stages.edits import edit_table
from stages.limits import AtLeastZero


@stage
class Replacer:
    """Replaces what a pattern finds, drops documents of which that removes too much, and raises on some."""

    name: ClassVar[str] = "replacer_v1"
    edits = ("found",)
    checks = (Check("too_much_found", "removed_chars.found", max="max_found"),)

    pattern: str = r"\d+"
    replacement: str = "#"
    max_found: AtLeastZero = 1e9
    raises_on: str = "boom"
    kills_on: str = ""

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Find the pattern."""
        found = []
        for row, text in enumerate(text_of(batch)):
            if self.kills_on and self.kills_on in text:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.raises_on and self.raises_on in text:
                raise ValueError("met")
            for match in re.finditer(self.pattern, text):
                start, end = (len(text[:at].encode()) for at in match.span())
                found.append((row, start, end))
        rows, starts, ends = zip(*found, strict=True) if found else ((), (), ())
        return Measured(edits=edit_table(rows, starts, ends, ["found"] * len(rows), [self.replacement] * len(rows)))


def documents(texts: list[str | None]) -> pa.RecordBatch:
    """Return a batch of documents with these texts."""
    row = {"source_index": 0, "offset": 0, "language": "und", "domain": "web", "failed": False}
    rows = [{**row, "doc_id": number, "text": text} for number, text in enumerate(texts)]
    return pa.RecordBatch.from_pylist(rows, schema=DOCUMENT)
