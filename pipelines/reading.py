"""What every reading of a recipe's sources shares, on any runner or on none."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.planning.labels import UNLABELLED
from pipelines.planning.sources import PlannedSource
from pipelines.recipe import SourceSettings
from stages.readers import Span
from stages.readers.base import READ, Source

UNSUPPORTED_MEDIA: Final = "unsupported_media"
NOT_EXTRACTED: Final = "no stage of the recipe took text from it"


def source_of(planned: PlannedSource, settings: SourceSettings, path: str) -> Source:
    """Return what a reader needs to know of a planned source."""
    return source_at(planned.index, settings, path, planned.span and Span(*planned.span))


def source_at(index: int, settings: SourceSettings, path: str, span: Span | None = None) -> Source:
    """Return what a reader needs to know of a file, or of a span of it, that is read by these settings."""
    return Source(
        index=index,
        span=span,
        path=path,
        format=settings.format,
        domain=UNLABELLED,
        text_key=settings.text_key,
        url_key=settings.url_key,
        date_key=settings.date_key,
        max_record_bytes=settings.max_record_bytes,
    )


def without_textless(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Mark what the whole chain left without a text: a page, say, in a recipe that extracts none. Nobody could use it.

    The reader gave it in the hope of a stage, so the drop is the reader's.
    """
    textless = pc.and_(pc.is_null(batch.column("text")), pc.is_null(batch.column("dropped_by")))
    if not pc.any(textless).as_py():
        return batch
    for name, mark in (("dropped_by", READ), ("reason", UNSUPPORTED_MEDIA), ("detail", NOT_EXTRACTED)):
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, batch.schema.field(name), pc.if_else(textless, mark, batch.column(name)))
    return batch
