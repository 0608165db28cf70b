"""Limits of scores, as a recipe writes them: a number, a number by language or domain, or a percentile.

    min_words = 50
    min_words = { language = { de = 40, th = 0 }, default = 50 }
    max_perplexity = { percentile = 95, by = "language" }
    max_perplexity = { percentile = 99, of = ["reference/en.txt"] }

The first two are known before a document is read, so they mark at once: they are *early*. A percentile is measured, on
the run itself or on reference text, and applied when everything has been judged: it is *late*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict

from stages.scores import Score

GROUPS: Final = ("language", "domain")
"""Columns by whose values a limit may differ."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grouped(_Strict):
    """A number for each language or domain that it names, and one for all others, or none."""

    language: dict[str, float] = pydantic.Field(default_factory=dict)
    domain: dict[str, float] = pydantic.Field(default_factory=dict)
    default: float | None = None

    @property
    def by(self) -> str:
        """The column that chooses the number."""
        return "language" if self.language else "domain"

    @property
    def numbers(self) -> dict[str, float]:
        """The number of each group."""
        return self.language or self.domain

    def number_of(self, group: str | None) -> float | None:
        """Return the number of a group, None for one that has none of its own; or None where there is no limit."""
        return self.default if group is None else self.numbers.get(group, self.default)

    @pydantic.model_validator(mode="after")
    def _is_by_one(self) -> Grouped:
        if bool(self.language) == bool(self.domain):
            raise ValueError("a limit by group has a table 'language' or a table 'domain'")
        if any(map(math.isnan, numbers_of(self))):
            raise ValueError("nan is not a number")
        return self


class Percentile(_Strict):
    """The smallest score that at least so many percent of the documents do not exceed.

    Hyndman and Fan's first definition (1996), numpy's ``inverted_cdf``, in exact arithmetic on the decimal notation.
    """

    percentile: float = pydantic.Field(ge=0, le=100)
    by: Literal["language", "domain"] | None = None
    """Measured over all documents, or apart for each language or domain."""
    of: tuple[str, ...] = ()
    """Globs of reference text on which it is measured; empty for the run itself."""

    @pydantic.model_validator(mode="after")
    def _groups_exist(self) -> Percentile:
        if self.of and self.by == "domain":
            raise ValueError("reference text has no domains: measure it by language, or over all of it")
        return self


def _kind_of(value: Any) -> str:
    if isinstance(value, Percentile) or (isinstance(value, Mapping) and "percentile" in value):
        return "percentile"
    return "by group" if isinstance(value, Grouped | Mapping) else "number"


def _require_number(value: float) -> float:
    if math.isnan(value):
        raise ValueError("nan is not a number")
    return value


Limit: TypeAlias = Annotated[
    Annotated[float, pydantic.AfterValidator(_require_number), pydantic.Tag("number")]
    | Annotated[Grouped, pydantic.Tag("by group")]
    | Annotated[Percentile, pydantic.Tag("percentile")],
    pydantic.Discriminator(_kind_of),
]
"""A limit in a recipe. A parameter that may also be without one is ``Limit | None``."""


def numbers_of(limit: Limit | None) -> list[float]:
    """Return the numbers that a limit names: none of a percentile's."""
    if isinstance(limit, Grouped):
        return [*limit.numbers.values(), *([] if limit.default is None else [limit.default])]
    return [] if limit is None or isinstance(limit, Percentile) else [limit]


def within(least: float = -math.inf, most: float = math.inf, *, above: float = -math.inf) -> AfterValidator:
    """Return a validator: every number that a limit names is ``least`` to ``most``, and more than ``above``."""

    def check(limit: Limit | None) -> Limit | None:
        for number in numbers_of(limit):
            if not (least <= number <= most and number > above):
                wanted = [f"at least {least:g}"] * (least > -math.inf) + [f"at most {most:g}"] * (most < math.inf)
                wanted += [f"more than {above:g}"] * (above > -math.inf)
                raise ValueError(f"{number:g} is not {' and '.join(wanted) or 'a number'}")
        return limit

    return AfterValidator(check)


Share: TypeAlias = Annotated[Limit, within(0, 1)]
"""A limit of a share, 0 to 1."""
AtLeastZero: TypeAlias = Annotated[Limit, within(0)]
"""A limit of a count or a ratio that is never negative."""
Positive: TypeAlias = Annotated[Limit, within(above=0)]
"""A limit of a score that is a power of ten."""


@dataclass(frozen=True)
class Bound:
    """A limit in steps of its score.

    Attributes:
        by: the column that chooses the step; None for one step for all.
        steps: the step of each group that has its own.
        default: the step of all others; None for no limit.
    """

    by: str | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    default: int | None = None

    def of_rows(self, group: pa.Array | None, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the step of each row, int64 of shape (size,), and whether it has one.

        Args:
            group: the column ``by`` of the rows; None where ``by`` is.
            size: how many rows.
        """
        if self.by is None:
            return np.full(size, self.default or 0, np.int64), np.full(size, self.default is not None)
        names = sorted(self.steps)
        own = pa.array([self.steps[name] for name in names], pa.int64())
        place = pa.compute.index_in(group, value_set=pa.array(names, pa.string()))
        found = own.take(place)
        if self.default is not None:
            found = found.fill_null(self.default)
        has = found.is_valid().to_numpy(zero_copy_only=False)
        return np.asarray(found.fill_null(0).to_numpy(zero_copy_only=False), np.int64), has

    def of_group(self, name: str) -> int | None:
        """Return the step of a group."""
        return self.steps.get(name, self.default)

    def groups(self) -> set[str]:
        """Return the groups that have a step of their own."""
        return set(self.steps)


def early_bound(score: Score, limit: Limit | None) -> Bound | None:
    """Return a limit that is known before a document is read, None for one that is not, or for none."""
    if limit is None or isinstance(limit, Percentile):
        return None
    if isinstance(limit, Grouped):
        default = None if limit.default is None else score.step_of(limit.default)
        return Bound(limit.by, {name: score.step_of(number) for name, number in limit.numbers.items()}, default)
    return Bound(default=score.step_of(limit))


def percentile_step(steps: Sequence[int], rows: Sequence[int], percentile: float) -> int:
    """Return the step at a percentile.

    Args:
        steps: distinct steps, ascending.
        rows: how many documents have each, at least one in all.
        percentile: 0 to 100.
    """
    reached = np.cumsum(np.asarray(rows, np.int64))
    rank = max(math.ceil(Fraction(str(percentile)) * int(reached[-1]) / 100), 1)
    return int(steps[int(np.searchsorted(reached, rank))])
