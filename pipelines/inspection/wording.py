"""Limits in words: what the checks of a stage ask of a score, for people and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from pipelines.late import late_rules
from stages.base import Stage, early_rules, late_limits
from stages.checks import ANY, Check, Rule
from stages.limits import Bound, Percentile
from stages.scores import Count, Score

MEASURED_LATER: Final = "measured by a run"
_MOST_NAMED: Final = 8

End = Literal["min", "max"]
_WORDS: Final = {"min": "at least", "max": "at most"}


@dataclass(frozen=True)
class Limit:
    """One limit of a check, or the names that it asks for.

    Attributes:
        check: whose limit it is.
        score: the score that it is of.
        end: which end of a number it limits; None for names.
        bound: the limit in steps; None for names, and for one that no run has measured.
        percentile: how it is measured, None for one that is given.
        allowed: the only names that stay; empty for all.
        forbidden: the names that do not.
        drops_null: whether a document without the score is dropped.
    """

    check: Check
    score: Score
    end: End | None = None
    bound: Bound | None = None
    percentile: Percentile | None = None
    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    drops_null: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether it is still to be measured by a run."""
        return self.percentile is not None and self.bound is None

    def rule(self) -> Rule:
        """Return what this limit alone drops."""
        least, greatest = (self.bound if self.end == end else None for end in ("min", "max"))
        return Rule(self.check, 0, self.score, least, greatest, self.allowed or None, self.forbidden, self.drops_null)

    def words(self) -> str:
        """Return the limit for all documents, such as ``at least 40 (de), 50 otherwise``."""
        said = []
        if self.end is not None:
            said.append(f"{_WORDS[self.end]} {self._numbers()}{self._origin()}")
        if self.allowed:
            said.append(f"one of {_listed(self.allowed)}")
        if self.forbidden:
            said.append("must have none" if ANY in self.forbidden else f"not {_listed(self.forbidden)}")
        if self.drops_null:
            said.append("required")
        return ", ".join(said)

    def words_for(self, groups: Mapping[str, str]) -> str:
        """Return the limit for a document of these groups, such as ``at most 82.3 (percentile 97 by language)``.

        Args:
            groups: the document's language and domain.
        """
        if self.end is None or self.bound is None or self.bound.by is None:
            return self.words()
        step = self.bound.of_group(groups[self.bound.by])
        if step is None:
            return f"no limit for {groups[self.bound.by]}{self._origin()}"
        own = f" for {groups[self.bound.by]}" if self.percentile is None else ""
        return f"{_WORDS[self.end]} {shown(self.score, step)}{own}{self._origin()}"

    def number_for(self, groups: Mapping[str, str]) -> float | None:
        """Return the limit for a document of these groups, None where there is none or it is not known."""
        if self.bound is None:
            return None
        step = self.bound.default if self.bound.by is None else self.bound.of_group(groups[self.bound.by])
        return None if step is None else self.score.value_of(step)

    def to_json(self) -> dict[str, Any]:
        """Return the limit as plain values."""
        found: dict[str, Any] = {"reason": self.check.reason}
        if self.end is not None:
            found["end"] = self.end
        if self.bound is not None:
            found["limit"] = None if self.bound.default is None else self.score.value_of(self.bound.default)
            if self.bound.by is not None:
                steps = sorted(self.bound.steps.items())
                found[f"limit_by_{self.bound.by}"] = {name: self.score.value_of(step) for name, step in steps}
        if self.percentile is not None:
            found |= self.percentile.model_dump(mode="json", exclude_defaults=True)
            found["is_measured"] = self.bound is not None
        for name, values in (("allowed", self.allowed), ("forbidden", self.forbidden)):
            if values:
                found[name] = list(values)
        if self.drops_null:
            found["null"] = "drop"
        return found

    def _numbers(self) -> str:
        if self.bound is None:
            return ""
        steps = sorted(self.bound.steps.items())
        said = [f"{shown(self.score, step)} ({name})" for name, step in steps[:_MOST_NAMED]]
        if len(steps) > _MOST_NAMED:
            said.append(f"{len(steps) - _MOST_NAMED} more")
        if self.bound.default is not None:
            said.append(shown(self.score, self.bound.default) + (" otherwise" if steps else ""))
        return ", ".join(said)

    def _origin(self) -> str:
        if self.percentile is None:
            return ""
        by = f" by {self.percentile.by}" if self.percentile.by else ""
        of = " of reference text" if self.percentile.of else ""
        how = f"percentile {self.percentile.percentile:g}{by}{of}"
        return f"{how}: {MEASURED_LATER}" if self.bound is None else f" ({how})"


def limits_of(stage: Stage, cuts: pa.Table | None) -> Iterator[Limit]:
    """Yield the limits of a stage, in the order of its checks.

    Args:
        stage: the stage.
        cuts: the limits that a run measured, as ``pipelines.late.CUTS``; None where none did.
    """
    measured = {(at, end): limit for at, end, limit in late_limits(stage)}
    places = sorted({at for at, _ in measured})
    late = dict(zip(places, late_rules(stage, cuts), strict=True)) if cuts is not None else {}
    for at, rule in enumerate(early_rules(stage)):
        ends: tuple[tuple[End, Bound | None, Bound | None], ...] = (
            ("min", rule.least, late[at].least if at in late else None),
            ("max", rule.greatest, late[at].greatest if at in late else None),
        )
        numbers = [
            Limit(rule.check, rule.score, end, own or cut, measured.get((at, end)))
            for end, own, cut in ends
            if own is not None or (at, end) in measured
        ]
        yield from numbers
        if rule.drops_null or not rule.score.is_number:
            names = Limit(rule.check, rule.score, None, None, None, rule.allowed or (), rule.forbidden, rule.drops_null)
            if names.words():
                yield names


def shown(score: Score, step: int) -> str:
    """Return a step of a number for people."""
    return str(step) if isinstance(score, Count) else f"{score.value_of(step):.7g}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
