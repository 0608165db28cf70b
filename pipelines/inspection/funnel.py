"""Drop statistics: what every stage saw, kept, dropped and failed, for the whole and by language and domain.

They are a group-by over verdicts, so ``seen == kept + sum(dropped) + failed`` by construction and under any retry. The
manifests hold that group-by per split already; ``counts_from_tables`` does it again over the full tables, to check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.chain import EXACT_DEDUP, NEAR_DEDUP, TOKENIZER, edit_links, stage_names
from pipelines.inspection.verdicts import failures, verdicts
from pipelines.passes import characters
from pipelines.passes.drops import FATE
from pipelines.run import Run
from pipelines.tables import group_counts, read_table
from pipelines.view import EDITS_PASS
from shards.errors import IncompleteError
from stages.registry import recipe_stage_class

_GROUPING = list(FATE)


class Fate(NamedTuple):
    """What became of a record, and what it was: the key by which records are counted."""

    dropped_by: str | None
    reason: str | None
    failed: bool
    language: str
    domain: str


@dataclass(frozen=True)
class StageCounts:
    """One link of the chain: ``seen == kept + sum(dropped.values()) + sum(failures.values())``."""

    name: str
    seen: int
    kept: int
    dropped: Mapping[str, int]
    failures: Mapping[str, int]

    @property
    def failed(self) -> int:
        """Records that could not be processed, of whatever kind."""
        return sum(self.failures.values())

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {
            "name": self.name,
            "seen": self.seen,
            "kept": self.kept,
            "failed": self.failed,
            "dropped": dict(self.dropped),
            "failures": dict(self.failures),
        }


Funnel = tuple[StageCounts, ...]
"""The links in chain order: each has seen what the one before it kept."""


@dataclass(frozen=True)
class Report:
    """The funnel of a run, for the whole and by language and domain, the names sorted."""

    stages: Funnel
    languages: Mapping[str, Funnel]
    domains: Mapping[str, Funnel]


def report(run: Run) -> Report:
    """Return the statistics of a finished run, from its markers alone.

    Raises:
        IncompleteError: if the passes are not finished, or the recipe has changed since.
    """
    return report_of(counts_from_manifest(run), link_names(run), run.root)


def link_names(run: Run) -> list[str]:
    """Return the names of every link that a run's documents have come through so far, in order."""
    ahead = [] if run.has(EDITS_PASS) else edit_links(run.recipe)
    names = [name for name in stage_names(run.recipe) if name not in ahead]
    return names + ([TOKENIZER] if run.has("write") else [])


def report_of(counts: Mapping[Fate, int], names: Sequence[str], place: str = "") -> Report:
    """Fold counted fates into funnels over the stages ``names``.

    Raises:
        IncompleteError: if a record was dropped by a stage that the chain does not have.
    """
    unknown = sorted({fate.dropped_by for fate in counts if fate.dropped_by is not None} - set(names))
    if unknown:
        raise IncompleteError(
            f"records were dropped by {', '.join(unknown)}, which the recipe does not have any more",
            place=place,
            remedy="The recipe changed after these verdicts: run it again to the end",
        )
    return Report(_funnel(counts, names), _by(counts, names, _language), _by(counts, names, _domain))


def _language(fate: Fate) -> str:
    return fate.language


def _domain(fate: Fate) -> str:
    return fate.domain


def _by(counts: Mapping[Fate, int], names: Sequence[str], key: Callable[[Fate], str]) -> dict[str, Funnel]:
    groups: dict[str, dict[Fate, int]] = {}
    for fate, rows in counts.items():
        groups.setdefault(key(fate), {})[fate] = rows
    return {name: _funnel(groups[name], names) for name in sorted(groups)}


def _funnel(counts: Mapping[Fate, int], names: Sequence[str]) -> Funnel:
    dropped: dict[str, Counter[str]] = {name: Counter() for name in names}
    failures: dict[str, Counter[str]] = {name: Counter() for name in names}
    for fate, rows in counts.items():
        if fate.dropped_by is not None:
            (failures if fate.failed else dropped)[fate.dropped_by][fate.reason or ""] += rows
    links = []
    seen = sum(counts.values())
    for name in names:
        kept = seen - dropped[name].total() - failures[name].total()
        links.append(StageCounts(name, seen, kept, _sorted(dropped[name]), _sorted(failures[name])))
        seen = kept
    return tuple(links)


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return {reason: rows for reason, rows in sorted(counts.items()) if rows}


def counts_from_manifest(run: Run) -> Counter[Fate]:
    """Count the fates of all records from the manifests of *drops*, *edits* and *write*."""
    counts: Counter[Fate] = Counter()
    _add(counts, run.manifest("drops").table("counts").to_pylist())
    for row in run.manifest(EDITS_PASS).table("counts").to_pylist() if run.has(EDITS_PASS) else ():
        ended = Fate(*(row[name] for name in _GROUPING))
        counts[ended] += row["rows"]
        counts[ended._replace(dropped_by=None, reason=None, failed=False)] -= row["rows"]
    for row in failures(run).to_pylist():
        kept = Fate(None, None, False, row["language"], row["domain"])
        counts[kept] -= 1
        counts[kept._replace(dropped_by=TOKENIZER, reason=row["reason"], failed=True)] += 1
    if min(counts.values(), default=0) < 0:
        raise AssertionError("more documents failed in the tokeniser than were left")
    return counts


def counts_from_tables(tables: Iterable[pa.Table]) -> Counter[Fate]:
    """Count the same from verdict tables, as ``verdicts`` yields them: a row per record."""
    counts: Counter[Fate] = Counter()
    for table in tables:
        _add(counts, group_counts(table.select(_GROUPING), _GROUPING).to_pylist())
    return counts


def _add(counts: Counter[Fate], rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        counts[Fate(*(row[name] for name in _GROUPING))] += row["rows"]


def recounted(run: Run) -> Report:
    """Return the statistics again, by a group-by over every verdict of the run."""
    return report_of(counts_from_tables(verdicts(run)), link_names(run), run.root)


@dataclass(frozen=True)
class Edited:
    """What one stage changed in texts for one reason."""

    stage: str
    reason: str
    documents: int
    removed_chars: int
    inserted_chars: int


def edited(run: Run) -> list[Edited]:
    """Return what was edited, by stage in chain order and reason, from the manifests alone.

    Of a stage in [[stages]] it is what it changed in all that it judged; of one in [[edits]], where two edits meet, the
    first has what both took out.
    """
    parts = [run.manifest(name).table("characters") for name in _with_characters(run)]
    rows = characters.summed(part.select(characters.CHARACTERS.names) for part in parts).to_pylist()
    sums: dict[tuple[int, str, str], Counter[str]] = {}
    order = {name: place for place, name in enumerate(stage_names(run.recipe))}
    for row in rows:
        key = (order[row["edited_by"]], row["edited_by"], row["reason"])
        sums.setdefault(key, Counter()).update({name: row[name] for name in characters.SUMS})
    return [Edited(stage, reason, **found) for (_, stage, reason), found in sorted(sums.items())]


def _with_characters(run: Run) -> list[str]:
    """Return the passes that have counted characters of edits."""
    has_editing = any(recipe_stage_class(use.use).edits for use in run.recipe.stages)
    return ["drops"] * has_editing + [EDITS_PASS] * run.has(EDITS_PASS)


@dataclass(frozen=True)
class Duplicates:
    """The removals of one kind of deduplication, and the documents that were kept for them."""

    stage: str
    removed: int
    witnesses: int
    """Distinct documents that stand for the removed ones."""
    largest: int
    """Most documents removed for one witness."""
    unwitnessed: int
    """Removals whose witness is not kept: always 0, or the run is wrong."""
    limited: int = 0
    """Documents that were not compared with every kept one of their buckets, as there were more of them than
    ``dedup.compared_per_key``."""


def duplicates(run: Run) -> list[Duplicates]:
    """Count the removed duplicates and their witnesses, from the drop files."""
    columns = ["doc_id", "dropped_by", "witness"]
    tables = [read_table(run.store, entry, columns) for entry in run.files("drops", "drops").values()]
    if not tables:
        return []
    drops = pa.concat_tables(tables)
    gone = drops.column("doc_id").to_numpy()
    by = np.asarray(drops.column("dropped_by").to_pylist(), dtype=object)
    found = []
    for stage in (EXACT_DEDUP, NEAR_DEDUP):
        if stage not in stage_names(run.recipe):
            continue
        witness = drops.column("witness").filter(pa.array(by == stage)).to_numpy()
        distinct, removals = np.unique(witness, return_counts=True)
        found.append(
            Duplicates(
                stage,
                removed=len(witness),
                witnesses=len(distinct),
                largest=int(removals.max(initial=0)),
                unwitnessed=int(np.isin(witness, gone).sum()),
                limited=_limited(run) if stage == NEAR_DEDUP else 0,
            )
        )
    return found


def _limited(run: Run) -> int:
    markers = run.manifest("near").markers() if run.has("near") else ()
    return sum(marker.statistics["limited"] for marker in markers)


@dataclass(frozen=True)
class Tokens:
    """What the shards hold of a domain."""

    documents: int = 0
    tokens: int = 0
    held_out_documents: int = 0
    held_out_tokens: int = 0


def _written(run: Run) -> list[Mapping[str, Any]]:
    """Return the statistics of the write pass's units; none in a run that did not come so far."""
    return [marker.statistics for marker in run.manifest("write").markers()] if run.has("write") else []


def tokens_by_domain(run: Run) -> dict[str, Tokens]:
    """Return documents and tokens (end-of-text included) of each domain, training and held out, the names sorted."""
    found: dict[str, dict[str, int]] = {}
    for unit in _written(run):
        for domain, subsets in unit["shards"].items():
            into = found.setdefault(domain, dict.fromkeys(Tokens.__dataclass_fields__, 0))
            for subset, entries in subsets.items():
                prefix = "" if subset == "train" else f"{subset}_"
                into[f"{prefix}documents"] += sum(entry["rows"] for entry in entries)
                into[f"{prefix}tokens"] += sum(entry["token_count"] for entry in entries)
    return {domain: Tokens(**found[domain]) for domain in sorted(found)}


def tokens_by_language(run: Run) -> dict[str, int]:
    """Return the tokens of each language, training and held out together, the names sorted."""
    counts: Counter[str] = Counter()
    for unit in _written(run):
        for language, row in unit["languages"].items():
            counts[language] += row["tokens"]
    return dict(sorted(counts.items()))


def main_losses(run: Run, most: int = 5) -> str:
    """Return the commonest ends of records in a sentence, such as ``137 of 140 read/missing_text``."""
    found = report(run).stages
    ends = [
        (count, f"{link.name}/{reason}")
        for link in found
        for reason, count in [*link.dropped.items(), *link.failures.items()]
    ]
    total = found[0].seen if found else 0
    return ", ".join(
        f"{count} of {total} {name}" for count, name in sorted(ends, key=lambda end: (-end[0], end[1]))[:most]
    )


def report_json(run: Run) -> dict[str, Any]:
    """Return the whole report as plain values, stages in chain order, for ``headrace inspect --json``."""
    found = report(run)
    tokens, by_language = tokens_by_domain(run), tokens_by_language(run)
    return {
        "stages": _plain(found.stages),
        "domains": {
            name: {**vars(tokens.get(name, Tokens())), "stages": _plain(funnel)}
            for name, funnel in found.domains.items()
        },
        "languages": {
            name: {"tokens": by_language.get(name, 0), "stages": _plain(funnel)}
            for name, funnel in found.languages.items()
        },
        "edits": [vars(one) for one in edited(run)],
        "duplicates": [vars(kind) for kind in duplicates(run)],
        "left_out": run.plan.left_out.to_pylist(),
    }


def _plain(funnel: Funnel) -> list[dict[str, Any]]:
    return [link.to_json() for link in funnel]
