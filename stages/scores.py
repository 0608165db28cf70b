"""Scores: what a stage measures of a document. Each declares its scale, on which scores and limits are rounded alike.

A score is held as a whole number of the steps of its scale, so a comparison, a histogram and a percentile of it are
exact. A table shows it as the number that the steps stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

STEPS: Final = 10_000
"""Steps of a ratio in 1, and of a logarithm in a decade."""

_MOST_STEPS: Final = float(1 << 50)
"""Up to here a float64 holds every whole number, and every ratio so that its step comes back from it."""

Values: TypeAlias = npt.NDArray[Any] | pa.Array | Sequence[Any]
"""n measured values: NaN, None or an Arrow null where a document has none."""


@dataclass(frozen=True)
class Score:
    """One measure of a document.

    Attributes:
        name: its name within the stage; its column is ``{instance}.{name}``.
        meaning: what it is, in a few words.
    """

    name: str
    meaning: str = ""

    type: ClassVar[pa.DataType]
    """The type of its column."""
    scale: ClassVar[str]
    """The scale's name."""
    is_number: ClassVar[bool] = True

    def column(self, values: Values) -> pa.Array:
        """Return measured values as the score's column, rounded to its scale.

        Raises:
            ValueError: for a value that the scale cannot hold; none is cut to what it can.
        """
        raise NotImplementedError

    def steps(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return a column of the score as steps, int64 of the same shape; 0 for null."""
        raise NotImplementedError

    def step_of(self, limit: float) -> int:
        """Return a limit as steps, rounded as scores are."""
        raise NotImplementedError

    def value_of(self, step: int) -> float:
        """Return the number that stands for a step in a column."""
        raise NotImplementedError


@dataclass(frozen=True)
class Count(Score):
    """A whole number, such as words."""

    type: ClassVar[pa.DataType] = pa.int64()
    scale: ClassVar[str] = "count"

    def column(self, values: Values) -> pa.Array:
        """Return the counts as int64."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
            values = pa.array(values)
        if isinstance(values, pa.Array) and not pa.types.is_floating(values.type):
            counts = values.cast(pa.int64())
            _require_told_apart(self, self.steps(counts))
            return counts
        found, missing = _floats(values)
        return pa.array(_whole(self, found).astype(np.int64), mask=missing)

    def steps(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return the counts themselves."""
        return np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.int64)

    def step_of(self, limit: float) -> int:
        """Return the limit, rounded to a whole number."""
        return _nearest(limit)

    def value_of(self, step: int) -> float:
        """Return the count."""
        return float(step)


@dataclass(frozen=True)
class Ratio(Score):
    """A ratio or a share, in whole multiples of 1e-4."""

    type: ClassVar[pa.DataType] = pa.float64()
    scale: ClassVar[str] = "ratio"

    def column(self, values: Values) -> pa.Array:
        """Return the ratios as float64, rounded to 1e-4."""
        found, missing = _floats(values)
        return pa.array(_whole(self, found * STEPS) / STEPS, mask=missing)

    def steps(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return the ratios in steps of 1e-4."""
        return _whole(self, _filled(column) * STEPS).astype(np.int64)

    def step_of(self, limit: float) -> int:
        """Return the limit in steps of 1e-4."""
        return _nearest(limit * STEPS)

    def value_of(self, step: int) -> float:
        """Return the ratio."""
        return step / STEPS


@dataclass(frozen=True)
class Log10(Score):
    """A power of ten, such as a perplexity: measured as its logarithm, which is rounded to whole multiples of 1e-4."""

    type: ClassVar[pa.DataType] = pa.float64()
    scale: ClassVar[str] = "log10"

    def column(self, values: Values) -> pa.Array:
        """Return, for base-10 logarithms, the powers that stand for them, float64 of seven digits."""
        found, missing = _floats(values)
        steps = _whole(self, found * STEPS).astype(np.int64)
        powers = np.fromiter(map(self.value_of, steps.tolist()), np.float64, len(steps))
        # Below the normal numbers a float64 has too few digits left to tell the steps apart.
        if not (np.isfinite(powers) & (powers >= np.finfo(np.float64).tiny)).all():
            raise ValueError(f"the score {self.name} holds a power of ten beyond what a float64 can hold")
        return pa.array(powers, mask=missing)

    def steps(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return the logarithms in steps of 1e-4."""
        return _whole(self, np.log10(_filled(column, 1.0)) * STEPS).astype(np.int64)

    def step_of(self, limit: float) -> int:
        """Return the logarithm of the limit, a positive number, in steps of 1e-4."""
        return _nearest(float(np.log10(limit)) * STEPS)

    def value_of(self, step: int) -> float:
        """Return the power."""
        # Seven digits tell all steps apart, and hide in which last place libraries differ.
        try:
            return float(f"{10.0 ** (step / STEPS):.7g}")
        except OverflowError:
            return float("inf")


@dataclass(frozen=True)
class Category(Score):
    """A name out of some, such as a language or a category of a blacklist."""

    type: ClassVar[pa.DataType] = pa.string()
    scale: ClassVar[str] = "category"
    is_number: ClassVar[bool] = False

    def column(self, values: Values) -> pa.Array:
        """Return the names as strings."""
        return values.cast(pa.string()) if isinstance(values, pa.Array) else pa.array(values, pa.string())


def _floats(values: Values) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return (values with 0 for missing ones, which are missing)."""
    if isinstance(values, pa.Array):
        values = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    found = np.asarray(values, np.float64)
    missing = np.isnan(found)
    return np.where(missing, 0.0, found), missing


def _filled(column: pa.Array, value: float = 0.0) -> npt.NDArray[np.float64]:
    return np.asarray(pc.fill_null(column, value).to_numpy(zero_copy_only=False), np.float64)


def _whole(score: Score, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    _require_told_apart(score, steps)
    return np.rint(steps)


def _require_told_apart(score: Score, steps: npt.NDArray[Any]) -> None:
    fits = (steps < _MOST_STEPS) & (steps > -_MOST_STEPS)
    if not fits.all():
        worst = float(steps[~fits][0])
        raise ValueError(f"the score {score.name} is {worst:g} steps of its scale, more than can be told apart")


def _nearest(steps: float) -> int:
    """Return a limit's steps as a whole number. No score lies beyond the largest, so one out there decides the same."""
    return round(float(np.rint(min(max(steps, -_MOST_STEPS), _MOST_STEPS))))
