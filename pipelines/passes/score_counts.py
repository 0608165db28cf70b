"""Scores of a split, counted in bins: small tables from which the histogram of every score of a run is added up.

A bin is a function of the score's value alone, so counts of splits, and of runs, add up exactly. Shares are counted by
the hundredth; what exceeds 1, and whole numbers, by the preferred numbers of ISO 3 (R20: 20 to a decade, each about 12%
above the one before it); powers of ten by a twentieth of a decade. So what a score takes of a marker stays small,
however many documents a split has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.late import LATE
from pipelines.tables import one_array
from stages.base import Stage, link_of, score_column
from stages.scores import STEPS, Score

SCORES: Final = pa.schema(
    [
        pa.field("score", pa.string(), nullable=False),
        # The smallest step of the bin, of a number.
        pa.field("bin", pa.int64()),
        # A category's name. Both are null for the names that are not among the most frequent.
        pa.field("name", pa.string()),
        pa.field("rows", pa.int64(), nullable=False),
        # Documents that the stage dropped by this score.
        pa.field("dropped", pa.int64(), nullable=False),
    ]
)
"""Documents by score and bin: the table ``scores`` in the markers of *drops* and *edits*."""

_GROUP: Final = SCORES.names[:3]

MOST_NAMES: Final = 128
"""Names of a category that a split counts apart: the most frequent ones."""
MOST_NAME_CHARS: Final = 64

LOG10_BIN_STEPS: Final = STEPS // 20
_SHARE_BIN_STEPS: Final = STEPS // 100
_LEAST: Final = np.iinfo(np.int64).min
_R20: Final = (100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900)
"""ISO 3:1973, the basic series R20, in hundredths."""


@functools.cache
def _starts(scale: str) -> npt.NDArray[np.int64]:
    """Return the smallest steps of all bins of a scale but log10, ascending, int64."""
    powers = [10**power for power in range(19)]
    # Rounded up: a bin begins with the first whole step that is in it.
    numbers = {-(-one * power // 100) for power in powers for one in _R20}
    if scale == "ratio":
        shares = set(range(_SHARE_BIN_STEPS, STEPS, _SHARE_BIN_STEPS))
        numbers = shares | {number for number in numbers if number >= STEPS}
    ascending = sorted(number for number in numbers if number <= np.iinfo(np.int64).max)
    return np.array([_LEAST, *(-one for one in reversed(ascending)), 0, *ascending], np.int64)


def bins_of(score: Score, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bin of each step of a number, as the smallest step in it: int64 of the same shape."""
    if score.scale == "log10":
        return steps // LOG10_BIN_STEPS * LOG10_BIN_STEPS
    starts = _starts(score.scale)
    return starts[np.searchsorted(starts, steps, side="right") - 1]


def end_of(score: Score, start: int) -> int | None:
    """Return the step after the last one of a bin, None for the bin that has no end."""
    if score.scale == "log10":
        return start + LOG10_BIN_STEPS
    starts = _starts(score.scale)
    after = int(np.searchsorted(starts, start, side="right"))
    return int(starts[after]) if after < len(starts) else None


def added_up(counts: Iterable[pa.Table]) -> pa.Table:
    """Return the sum of tables in the schema ``SCORES``, added a table at a time, sorted by score and bin."""
    total = SCORES.empty_table()
    for table in counts:
        both = pa.concat_tables([total, table]).group_by(_GROUP)
        total = both.aggregate([("rows", "sum"), ("dropped", "sum")]).rename_columns(SCORES.names).cast(SCORES)
    return total.sort_by([(name, "ascending") for name in _GROUP])


def count_scores(verdicts: pa.Table, chain: Sequence[Stage]) -> pa.Table:
    """Count all scores of a chain.

    A document that an earlier check drops has no score: also where it was scored before that check was tightened.

    Args:
        verdicts: final verdicts, with the columns of the scores.
        chain: the stages.

    Returns:
        A table as ``SCORES``, scores in the order of the chain.
    """
    links = [link_of(stage) for stage in chain]
    dropped_by, reason = one_array(verdicts.column("dropped_by")), one_array(verdicts.column("reason"))
    failed = one_array(verdicts.column("failed")).to_numpy(zero_copy_only=False)
    # What drops a document after the chain, and what never entered it (and so has no score), stands behind it.
    at = _filled(pc.index_in(dropped_by, value_set=pa.array(links, pa.string())), len(chain))
    late = _filled(pc.index_in(dropped_by, value_set=pa.array([name + LATE for name in links], pa.string())), -1)
    counted = [SCORES.empty_table()]
    for place, stage in enumerate(chain):
        mine = ((at == place) | (late == place)) & ~failed
        for score in stage.scores:
            name = score_column(stage, score.name)
            if name not in verdicts.column_names:
                continue
            reasons = pa.array({check.reason for check in stage.checks if check.score == score.name}, pa.string())
            column = one_array(verdicts.column(name))
            shown = pa.array((at >= place) & column.is_valid().to_numpy(zero_copy_only=False))
            by_it = mine & _filled(pc.is_in(reason, value_set=reasons), 0).astype(np.bool_)
            found = _count(score, column.filter(shown), by_it[shown.to_numpy(zero_copy_only=False)])
            counted.append(_rows(name, *found))
    return pa.concat_tables(counted)


def _filled(column: pa.Array, value: int) -> npt.NDArray[np.int64]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return np.asarray(pc.fill_null(column, value).to_numpy(zero_copy_only=False), np.int64)


Counted = tuple[list[int | None], list[str | None], list[int], list[int]]
"""Bins, names, documents, dropped ones."""


def _count(score: Score, column: pa.Array, dropped: npt.NDArray[np.bool_]) -> Counted:
    if not score.is_number:
        return _count_names(column, dropped)
    bins, inverse = np.unique(bins_of(score, score.steps(column)), return_inverse=True)
    rows, gone = _per_group(inverse, dropped, len(bins))
    return bins.tolist(), [None] * len(bins), rows, gone


def _count_names(column: pa.Array, dropped: npt.NDArray[np.bool_]) -> Counted:
    encoded: Any = pc.dictionary_encode(pc.utf8_slice_codeunits(column, 0, MOST_NAME_CHARS))
    names: list[str | None] = encoded.dictionary.to_pylist()
    rows, gone = _per_group(encoded.indices.to_numpy(zero_copy_only=False), dropped, len(names))
    ranked = sorted(range(len(names)), key=lambda one: (-rows[one], names[one]))
    most, rest = sorted(ranked[:MOST_NAMES], key=lambda one: str(names[one])), ranked[MOST_NAMES:]
    counted = [(names[one], rows[one], gone[one]) for one in most]
    if rest:
        counted.append((None, sum(rows[one] for one in rest), sum(gone[one] for one in rest)))
    bins: list[int | None] = [None] * len(counted)
    return bins, [name for name, _, _ in counted], [many for _, many, _ in counted], [lost for _, _, lost in counted]


def _per_group(
    inverse: npt.NDArray[np.int64], dropped: npt.NDArray[np.bool_], groups: int
) -> tuple[list[int], list[int]]:
    """Return (documents, dropped ones) of each group."""
    return (
        np.bincount(inverse, minlength=groups).tolist(),
        np.bincount(inverse[dropped], minlength=groups).tolist(),
    )


def _rows(name: str, bins: Sequence[int | None], names: Sequence[str | None], rows: Any, dropped: Any) -> pa.Table:
    columns = ([name] * len(rows), bins, names, rows, dropped)
    return pa.table([pa.array(one, field.type) for one, field in zip(columns, SCORES, strict=True)], schema=SCORES)
