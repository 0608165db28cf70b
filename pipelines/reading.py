"""What every reading of a recipe's sources shares, on any runner or on none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.planning.labels import UNLABELLED
from pipelines.planning.sources import PlannedSource
from pipelines.recipe import SourceSettings
from stages.base import Stage
from stages.readers import Span
from stages.readers.base import Source
from stages.readers.reading import READ, Reading

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
        min_status=settings.min_status,
        max_status=settings.max_status,
    )


def reading_of(tables: Sequence[SourceSettings]) -> Stage:
    """Return what readers of these sources measure and drop, with the limits that are the same for all of them."""
    fields = ("min_status", "max_status", "max_record_bytes")
    values = {name: {getattr(table, name) for table in tables} for name in fields}
    shared = {name: next(iter(found)) if len(found) == 1 else None for name, found in values.items()}
    # What ``@stage`` adds to a class is beyond a type checker's sight.
    return cast(Stage, Reading(**shared))


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
