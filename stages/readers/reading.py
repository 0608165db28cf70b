"""What readers measure of a record, and what of it is dropped: declared as any stage declares its scores and checks.

A reader is not applied to batches: it makes them. It measures as it goes, and looks no further where a check drops the
record already (``Row.measure``); ``Rules.marks`` then decides the whole batch, as every stage is decided.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import numpy as np
import pyarrow as pa

from stages.base import Measured, Stage, columns_of, decided, early_rules, score_column, stage
from stages.checks import KEPT, Check, Rule
from stages.failing import FAILURES
from stages.scores import Category, Count, Values

READ: Final = "read"
"""``dropped_by`` of every record that a reader drops or fails, and the link that its scores go by."""

HTML: Final = ("application/vnd.wap.xhtml+xml", "application/xhtml+xml", "text/html")
PLAIN: Final = ("text/plain",)

SEGMENT: Final = "continuation"
"""``kind`` of one segment of a record that WARC segmentation split: segments are not joined."""
UNREAD: Final = "unread"
"""``kind`` of a container, or a version of it, that is not read."""
UNKNOWN: Final = "unknown"
"""``kind`` of a record whose WARC-Type no version of the standard names."""

READ_FAILURES: Final = (
    "empty_file",  # a file without a byte, or without a record
    "unreadable",  # bytes that are not what their container promises: a Parquet file, or rows of a damaged row group
    "truncated",  # the input ends inside the record
    "decompression",  # damaged compressed data, of the container or of an HTTP body
    "bad_record",  # a WARC record whose header or length is wrong, or bytes that belong to no record
    "bad_http",  # an HTTP response whose status line or chunks cannot be parsed
    "bad_encoding",  # bytes that are not UTF-8 where they must be, or a lone surrogate
    "bad_json",  # a line that is not a JSON object
    "missing_text",  # a row without the text field, or with something else than a string in it
    "crashed",  # code that reads one record raised what nobody foresaw
)


@stage
class Reading:
    """What a reader measures of every record: its kind, and the status, media type and length of what it holds."""

    name: ClassVar[str] = READ
    needs: ClassVar[tuple[str, ...]] = ()
    scores: ClassVar[tuple[Any, ...]] = (
        Category("kind", "WARC-Type of the record, 'unread' for a format that is not read; none for rows of a table"),
        Count("status", "status of the HTTP response"),
        Category("media", "media type of the body: as declared, else by its first bytes"),
        Count("bytes", "bytes of the text or body, HTTP codings undone, as far as known; 0 for white space only"),
    )
    checks: ClassVar[tuple[Check, ...]] = (
        Check("unsupported_format", "kind", forbidden="unread"),
        Check("segmented", "kind", forbidden="segments"),
        Check("not_a_document", "kind", allowed="kinds"),
        Check("http_status", "status", min="min_status", max="max_status"),
        Check("unsupported_media", "media", allowed="media"),
        Check("too_large", "bytes", max="max_record_bytes"),
        Check("empty", "bytes", min=1),
    )
    failures: ClassVar[tuple[str, ...]] = READ_FAILURES
    unread: ClassVar[tuple[str, ...]] = (UNREAD,)
    segments: ClassVar[tuple[str, ...]] = (SEGMENT,)
    kinds: ClassVar[tuple[str, ...]] = ("conversion", "resource", "response")
    media: ClassVar[tuple[str, ...]] = HTML + PLAIN

    min_status: int | None = 200
    max_status: int | None = 299
    max_record_bytes: int | None = 16 << 20

    def measure(self, batch: pa.RecordBatch) -> Measured | Mapping[str, Values]:
        """Return the scores that a reader gave the rows of ``batch``, which cannot be measured from its columns."""
        link = cast(Stage, self)
        return {score.name: batch.column(score_column(link, score.name)) for score in self.scores}


READ_REASONS: Final = tuple(dict.fromkeys(check.reason for check in Reading.checks))
"""Every reason for which a reader drops a record."""

SCORES: Final = tuple(score.name for score in Reading.scores)

COLUMNS: Final = tuple(pa.field(name, kind) for name, kind in columns_of(cast(Stage, Reading())).items())
"""The columns that a reader adds to those of ``shards.schema.DOCUMENT``: its scores."""

_REASONS: Final = (*READ_REASONS, *READ_FAILURES, *FAILURES)


class Rules:
    """The checks of a ``Reading`` with their limits, to be asked of one record and of a batch."""

    def __init__(self, reading: Reading) -> None:
        self._rules = early_rules(cast(Stage, reading))
        self._numbers: dict[str, tuple[float, float]] = {}
        self._names: dict[str, tuple[frozenset[str] | None, frozenset[str]]] = {}
        for score in Reading.scores:
            rules = [rule for rule in self._rules if rule.check.score == score.name]
            if score.is_number:
                self._numbers[score.name] = _within(rules)
            else:
                allowed = [frozenset(rule.allowed) for rule in rules if rule.allowed is not None]
                forbidden = frozenset(name for rule in rules for name in rule.forbidden)
                self._names[score.name] = (frozenset.intersection(*allowed) if allowed else None, forbidden)

    def drops(self, score: str, value: int | str) -> bool:
        """Return whether a check drops a record with this score, whatever its others are.

        Asked several times of every record, so all that the checks say of a score has been put together before.
        """
        if isinstance(value, str):
            allowed, forbidden = self._names[score]
            return value in forbidden or (allowed is not None and value not in allowed)
        least, greatest = self._numbers[score]
        return not least <= value <= greatest

    def marks(
        self, scores: Mapping[str, Sequence[Any]], failures: Sequence[str | None]
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Decide n records.

        Args:
            scores: the values of each score, None where a record has none.
            failures: why a record could not be read, None where it could.

        Returns:
            (the columns ``COLUMNS`` by name, the columns ``reason``, ``value``, ``failed`` and ``detail``). ``detail``
            is the name that decided.
        """
        rows = len(failures)
        columns = {score.name: score.column(pa.array(scores[score.name], score.type)) for score in Reading.scores}
        codes, value, said = decided(self._rules, columns, {}, rows)
        failed = np.array([failure is not None for failure in failures], np.bool_)
        codes = codes.astype(np.int64)
        for row in np.flatnonzero(failed).tolist():
            codes[row], value[row], said[row] = _REASONS.index(cast(str, failures[row])), np.nan, None
        names = {field.name: columns[name] for field, name in zip(COLUMNS, SCORES, strict=True)}
        return names, {
            "reason": pa.array(_REASONS, pa.string()).take(pa.array(codes, mask=codes == KEPT)),
            "value": pa.array(value, mask=np.isnan(value)),
            "failed": pa.array(failed),
            "detail": pa.array(said, pa.string()),
        }


def _within(rules: Sequence[Rule]) -> tuple[float, float]:
    """Return the least and the greatest count that no rule drops."""
    least = [rule.least.default for rule in rules if rule.least is not None]
    greatest = [rule.greatest.default for rule in rules if rule.greatest is not None]
    return (
        max((step for step in least if step is not None), default=-math.inf),
        min((step for step in greatest if step is not None), default=math.inf),
    )


@functools.lru_cache(maxsize=64)
def rules_of(min_status: int | None, max_status: int | None, max_record_bytes: int | None) -> Rules:
    """Return the checks of readers with these limits."""
    return Rules(Reading(min_status=min_status, max_status=max_status, max_record_bytes=max_record_bytes))
