"""Checks: what of a score is dropped, with a reason each. One function decides for all stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.limits import Bound, Limit, Percentile, early_bound
from stages.scores import Score

KEPT: Final = -1
"""Code of a row that stays."""

ANY: Final = "*"
"""Forbids every value of a category."""

Parameter = str
"""Name of a parameter of the stage, or of a property, or ``name.0`` for an item of a parameter that is a tuple."""


@dataclass(frozen=True)
class Check:
    """What drops a document, by one of its scores.

    Attributes:
        reason: the reason of the drop.
        score: the score's name.
        min: the parameter that holds the least value that stays, or the number itself.
        max: the parameter that holds the greatest value that stays, or the number itself.
        allowed: the parameter that holds the values that stay; empty for all.
        forbidden: the parameter that holds the values that do not, or ``ANY``.
        null: what becomes of a document without the score: ``keep``, ``drop``, or the parameter that says so.
    """

    reason: str
    score: str
    min: Parameter | float | None = None
    max: Parameter | float | None = None
    allowed: Parameter | None = None
    forbidden: Parameter | None = None
    null: Literal["keep", "drop"] | Parameter = "keep"

    def parameters(self) -> list[Parameter]:
        """Return the parameters that it reads."""
        said = [self.min, self.max, self.allowed, self.forbidden if self.forbidden != ANY else None]
        said += [self.null] if self.null not in ("keep", "drop") else []
        return [name for name in said if isinstance(name, str)]


@dataclass(frozen=True)
class Rule:
    """A check with its limits resolved, for one instance of a stage.

    Attributes:
        check: what it was declared as.
        code: index of its reason among the stage's.
        score: what it compares.
        least: the smallest step that stays, None for no limit.
        greatest: the largest step that stays, None for no limit.
        allowed: the only values that stay; None for all.
        forbidden: values that do not; ``(ANY,)`` for all.
        drops_null: whether a document without the score is dropped.
    """

    check: Check
    code: int
    score: Score
    least: Bound | None = None
    greatest: Bound | None = None
    allowed: tuple[str, ...] | None = None
    forbidden: tuple[str, ...] = ()
    drops_null: bool = False

    def groups(self) -> set[str]:
        """Return the columns by which its limits differ."""
        return {bound.by for bound in (self.least, self.greatest) if bound is not None and bound.by is not None}

    def hits(self, column: pa.Array, groups: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
        """Return which rows it drops, shape (n,).

        Args:
            column: the score's column of n rows.
            groups: the columns that ``groups()`` names, of the same rows.
        """
        rows = len(column)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        hit = ~valid if self.drops_null else np.zeros(rows, np.bool_)
        if self.score.is_number:
            if self.least is None and self.greatest is None:
                return hit
            steps = self.score.steps(column)
            for bound, is_least in ((self.least, True), (self.greatest, False)):
                if bound is not None:
                    limit, has = bound.of_rows(groups.get(bound.by or ""), rows)
                    hit |= valid & has & (steps < limit if is_least else steps > limit)
            return hit
        if self.allowed is not None:
            hit |= valid & ~_is_in(column, self.allowed)
        if self.forbidden:
            hit |= valid if ANY in self.forbidden else valid & _is_in(column, self.forbidden)
        return hit


def _is_in(column: pa.Array, values: Sequence[str]) -> npt.NDArray[np.bool_]:
    found = pc.is_in(column, value_set=pa.array(values, pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def decide(
    rules: Sequence[Rule], scores: Mapping[str, pa.Array], groups: Mapping[str, pa.Array], rows: int
) -> npt.NDArray[np.int32]:
    """Return the position in ``rules`` of the first that drops each row, ``KEPT`` where none does; int32 of (rows,).

    Args:
        rules: checks in the order in which they give the reason.
        scores: columns of all rows by the name of the score.
        groups: the columns by which limits differ.
        rows: how many rows there are.
    """
    found = np.full(rows, KEPT, np.int32)
    for position, rule in enumerate(rules):
        hit = rule.hits(scores[rule.check.score], groups)
        found[hit & (found == KEPT)] = position
    return found


def value_and_detail(rule: Rule, column: pa.Array, row: int) -> tuple[float | None, str | None]:
    """Return what decided, for people: the number of a row that a rule drops, or the name."""
    value = column[row].as_py()
    if value is None:
        return None, None
    return (float(value), None) if rule.score.is_number else (None, value)


def parameter_of(values: Any, name: Parameter) -> Any:
    """Return a parameter of a stage by the name that a check gives it."""
    attribute, _, item = name.partition(".")
    value = getattr(values, attribute)
    return value[int(item)] if item else value


def limit_of(values: Any, said: Parameter | float | None) -> Limit | None:
    """Return the limit that a check names, or is."""
    return parameter_of(values, said) if isinstance(said, str) else said


def rule_of(values: Any, check: Check, code: int, score: Score) -> Rule:
    """Return a check with the limits that are known before a document is read.

    Args:
        values: the stage.
        check: one of its checks.
        code: index of the reason.
        score: the score that the check names.
    """
    allowed = parameter_of(values, check.allowed) if check.allowed else ()
    forbidden = check.forbidden and ((ANY,) if check.forbidden == ANY else parameter_of(values, check.forbidden))
    null = check.null if check.null in ("keep", "drop") else parameter_of(values, check.null)
    return Rule(
        check,
        code,
        score,
        early_bound(score, limit_of(values, check.min)),
        early_bound(score, limit_of(values, check.max)),
        tuple(allowed) or None,
        tuple(forbidden or ()),
        null == "drop",
    )


def percentiles_of(values: Any, check: Check) -> dict[str, Percentile]:
    """Return the limits of a check that are measured, by which end they are of: ``min`` or ``max``."""
    ends = {"min": limit_of(values, check.min), "max": limit_of(values, check.max)}
    return {end: limit for end, limit in ends.items() if isinstance(limit, Percentile)}
