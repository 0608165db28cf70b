"""Labels: domain, licence and priority of a document. They come from the recipe, and are joined to what is read.

No judged table holds them, as long as no stage asks for a domain: so changing one judges nothing again. Whoever opens
judged tables calls ``Labels.join``, and makes ``Labels.digest`` of what it uses a part of its own digest.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.recipe import Recipe
from stages.url.domains import HostRules

if TYPE_CHECKING:
    from pipelines.plan import Plan

LABELS: Final = ("domain", "licence", "priority")
"""Settings of a source that say nothing of what reading it gives."""

UNLABELLED: Final = ""
"""The domain of rows that no label has been joined to."""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def asks_for_domain(recipe: Recipe) -> bool:
    """Return whether a stage judges some domains only, or by limits of theirs: then verdicts depend on the domain."""
    return any(
        use.parameters.get("domains") or any(map(_is_by_domain, use.parameters.values())) for use in recipe.stages
    )


def _is_by_domain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_by_domain, value))
    return isinstance(value, Mapping) and bool(value.get("domain"))


def judged_rules(recipe: Recipe) -> list[Any]:
    """Return the part of the domain rules that verdicts depend on, for the digest of judging: all of them, or none.

    A source's own domain is in the name of its split where a stage asks for it.
    """
    return [rule.model_dump(mode="json") for rule in recipe.domains] if asks_for_domain(recipe) else []


class SourceLabels(NamedTuple):
    """The labels of a ``[[sources]]`` table."""

    domain: str
    licence: str | None
    priority: int


@dataclass(frozen=True)
class LabelRules:
    """Which labels a source has, by its ``[[sources]]`` table, and which domain a host. Small to pickle."""

    tables: tuple[SourceLabels, ...]
    hosts: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, recipe: Recipe) -> LabelRules:
        """Return the rules of a recipe."""
        tables = tuple(SourceLabels(table.domain, table.licence, table.priority) for table in recipe.sources)
        return cls(tables, tuple((rule.name, rule.hosts) for rule in recipe.domains))

    def labels(self, runs: Sequence[Sequence[int]]) -> Labels:
        """Return the labels of a split's sources, from runs of (first index, count, position of their settings)."""
        first, counts, settings = np.array(runs, np.int32).reshape(-1, 3).T
        within = np.arange(counts.sum(), dtype=np.int32) - np.repeat(np.cumsum(counts) - counts, counts)
        indices = (np.repeat(first, counts) + within).astype(np.int32)
        return Labels(self, indices, np.repeat(settings, counts))


@dataclass(frozen=True)
class Labelling:
    """The labels that a pass joins to what it reads.

    Attributes:
        rules: what workers need.
        digest: of these labels of every source of the run.
    """

    rules: LabelRules
    digest: str

    @classmethod
    def of(cls, recipe: Recipe, plan: Plan, *names: str) -> Labelling:
        """Return the labelling of a run by some of ``LABELS``."""
        rules = LabelRules.of(recipe)
        return cls(rules, Labels.of_plan(rules, plan).digest(names))

    def labels(self, runs: Sequence[Sequence[int]]) -> Labels:
        """Return the labels of a split's sources, from runs of (first index, count, position of their settings)."""
        return self.rules.labels(runs)


class Labels:
    """The labels of a run's sources, or of some of them.

    Args:
        rules: say which label a source and a host have.
        indices: source indices, int32, ascending.
        settings: position of the ``[[sources]]`` table of each, int32.
    """

    def __init__(self, rules: LabelRules, indices: npt.NDArray[np.int32], settings: npt.NDArray[np.int32]) -> None:
        self._tables = rules.tables
        self._indices, self._settings = indices, settings
        self._host_rules = list(rules.hosts)
        self._rules = HostRules(self._host_rules)
        # Source indices are dense, so a table by index is as small as the list of them.
        self._first = int(indices[0]) if len(indices) else 0
        self._position = np.full(int(indices[-1]) - self._first + 1 if len(indices) else 0, -1, np.int32)
        self._position[indices - self._first] = settings

    @classmethod
    def of_plan(cls, rules: LabelRules, plan: Plan) -> Labels:
        """Return the labels of all sources of a run."""
        return cls(rules, plan.splits.rows, plan.splits.settings)

    def domain(self, source_index: pa.Array, host: pa.Array) -> pa.Array:
        """Return the domain, string, of rows with these sources (int32) and hosts (string): by rule, else the source's.

        Raises:
            ValueError: for a source that the plan does not have.
        """
        own = self._taken("domain", source_index)
        return pc.coalesce(self._rules.domains(host), own) if self._host_rules else own

    def licence(self, source_index: pa.Array) -> pa.Array:
        """Return the licence, string, null where it is unknown, of rows with these sources."""
        return self._taken("licence", source_index)

    def priority(self, source_index: pa.Array) -> pa.Array:
        """Return the priority, int32, of rows with these sources."""
        return self._taken("priority", source_index)

    def with_domain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch as read, with the column ``domain`` set, for stages that ask for it."""
        return _set(batch, "domain", self.domain(batch.column("source_index"), batch.column("host")))

    def join(self, rows: Rows, labels: Sequence[str] = LABELS) -> Rows:
        """Return judged rows with these labels set, or added where the rows do not have the column.

        The rows need ``source_index``, and ``host`` for the domain where the recipe has domain rules.
        """
        source_index = _one(rows.column("source_index"))
        for name in labels:
            if name == "domain":
                host = _one(rows.column("host")) if self._host_rules else source_index
                rows = _set(rows, name, self.domain(source_index, host))
            else:
                rows = _set(rows, name, self._taken(name, source_index))
        return rows

    def digest(self, labels: Sequence[str] = LABELS) -> str:
        """Return the digest of these labels of every source, and of the domain rules where ``domain`` is among them.

        It does not depend on how the recipe's tables are ordered or divided.
        """
        digest = hashlib.sha256()
        for name in sorted(labels):
            values = [getattr(table, name) for table in self._tables]
            distinct = sorted(set(values), key=lambda value: (value is not None, value))
            codes = np.array([distinct.index(value) for value in values], np.int32)[self._settings]
            # Only what some source has.
            used, dense = np.unique(codes, return_inverse=True)
            said = [name, [distinct[code] for code in used.tolist()]]
            digest.update(json.dumps(said, ensure_ascii=False).encode() + dense.astype("<i4").tobytes())
        if "domain" in labels:
            digest.update(json.dumps(self._host_rules, ensure_ascii=False).encode())
        digest.update(self._indices.astype("<i4").tobytes())
        return digest.hexdigest()

    def _taken(self, name: str, source_index: pa.Array) -> pa.Array:
        indices = source_index.to_numpy(zero_copy_only=False)
        at = indices - self._first
        positions = np.full(len(at), -1, np.int32)
        inside = (at >= 0) & (at < len(self._position))
        positions[inside] = self._position[at[inside]]
        if (positions < 0).any():
            raise ValueError(f"the plan has no source {indices[positions < 0][0]}: these rows are another run's")
        return self._values[name].take(pa.array(positions))

    @functools.cached_property
    def _values(self) -> dict[str, pa.Array]:
        kinds = {"domain": pa.string(), "licence": pa.string(), "priority": pa.int32()}
        return {name: pa.array([getattr(t, name) for t in self._tables], kind) for name, kind in kinds.items()}


def _one(column: Any) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _set(rows: Rows, name: str, values: pa.Array) -> Rows:
    place = rows.schema.get_field_index(name)
    if place < 0:
        return rows.append_column(pa.field(name, values.type), values)
    return rows.set_column(place, rows.schema.field(name), values)
