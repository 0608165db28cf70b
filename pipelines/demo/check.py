"""Checks that the run's table of verdicts holds the right verdict on every planted record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pipelines.demo.planted import KEPT, Item, Planted

NOT_A_DOCUMENT: Final = "not_a_document"
"""Reason of the reader for records that accompany a document, such as a request."""
JACCARD_TOLERANCE: Final = 0.02
"""Room for the title that extraction may add to or leave off a page's text."""

_COLUMNS: Final = ("doc_id", "url", "source_index", "dropped_by", "reason", "failed", "witness", "jaccard")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """What became of one planted record, or of one duplicate group as a whole."""

    kind: str
    url: str
    expected: str
    found: str
    ok: bool


def check(verdicts: pa.Table, planted: Planted) -> list[Finding]:
    """Compare every planted record with its verdict.

    Args:
        verdicts: one row per record of the run: ``doc_id`` int64, ``url``, ``source_index`` int32, ``dropped_by``,
            ``reason``, ``failed`` bool, ``witness`` int64 doc_id or null, ``jaccard`` float64 or null.
        planted: what ``write_corpus`` returned.

    Returns:
        A finding per item in the order of planting, then one per duplicate group: exactly one member survives.
    """
    rows: list[Row] = verdicts.select(list(_COLUMNS)).to_pylist()
    by_url: dict[str, list[Row]] = defaultdict(list)
    by_source: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_source[row["source_index"]].append(row)
        if row["url"] is not None:
            by_url[row["url"]].append(row)
    by_id = {row["doc_id"]: row for row in rows}
    findings: list[Finding] = []
    survivors: dict[str, list[str]] = defaultdict(list)
    for item in planted.items:
        if item.beside:
            findings.append(_failures(item, by_url, by_source))
            continue
        verdict = _judged(by_url.get(item.url, []))
        if item.group:
            kept = verdict is not None and verdict["dropped_by"] is None
            survivors[item.group] += [item.url] if kept else []
            findings.append(_member(item, verdict, by_id))
        else:
            found = _outcome(verdict)
            findings.append(_finding(item, found, _matches(found, item.expected)))
    return findings + _groups(planted, survivors)


def summary(findings: Sequence[Finding]) -> list[tuple[str, int, int]]:
    """Return (kind, fulfilled, planted) per kind, in order of first appearance."""
    total = Counter(finding.kind for finding in findings)
    good = Counter(finding.kind for finding in findings if finding.ok)
    return [(kind, good[kind], number) for kind, number in total.items()]


def _judged(rows: Sequence[Row]) -> Row | None:
    """Return the row of the document among those of one URL: a crawl has its request and metadata records as well."""
    documents = [row for row in rows if row["reason"] != NOT_A_DOCUMENT]
    return documents[0] if len(documents) == 1 else None


def _outcome(row: Row | None) -> str:
    if row is None:
        return "not in the run, or there more than once"
    if row["dropped_by"] is None:
        return KEPT
    return f"{row['dropped_by']}/{row['reason']}"


def _matches(found: str, expected: Sequence[str]) -> bool:
    return found in expected or found.partition("/")[0] in expected


def _finding(item: Item, found: str, ok: bool) -> Finding:
    return Finding(item.kind, item.url, " or ".join(item.expected), found, ok)


def _failures(item: Item, by_url: Mapping[str, list[Row]], by_source: Mapping[int, list[Row]]) -> Finding:
    sources = {row["source_index"] for row in by_url.get(item.beside, [])}
    failed = [row for source in sorted(sources) for row in by_source[source] if row["failed"]]
    right = [row for row in failed if _matches(_outcome(row), item.expected)]
    found = ", ".join(f"{_outcome(row)}" for row in failed) or "no failure counted"
    return _finding(item, found, len(sources) == 1 and len(right) == len(failed) == item.records)


def _member(item: Item, row: Row | None, by_id: Mapping[int, Row]) -> Finding:
    found = _outcome(row)
    if row is None or found == KEPT:
        return Finding(
            item.kind, item.url, f"{' or '.join(item.expected)}, or kept as the survivor", found, row is not None
        )
    ok = _matches(found, item.expected)
    witness = by_id.get(row["witness"]) if row["witness"] is not None else None
    if witness is None or witness["dropped_by"] is not None:
        return _finding(item, f"{found}, its witness {'is not kept' if witness else 'is missing'}", False)
    found += f", witness {witness['url']}"
    known = item.jaccard.get(witness["url"])
    if known is None:
        return _finding(item, f"{found}, which was not planted as its duplicate", False)
    if row["jaccard"] is not None:
        found += f" at Jaccard {row['jaccard']:.3f} (planted {known:.3f})"
        ok = ok and abs(row["jaccard"] - known) <= JACCARD_TOLERANCE
    return _finding(item, found, ok)


def _groups(planted: Planted, survivors: Mapping[str, list[str]]) -> list[Finding]:
    members: dict[str, list[Item]] = defaultdict(list)
    for item in planted.items:
        if item.group:
            members[item.group].append(item)
    findings = []
    for group, items in members.items():
        kept = survivors[group]
        found = ", ".join(kept) or "none survives"
        expected = f"one of {len(items)} survives"
        findings.append(Finding(f"{items[0].kind} group", items[0].url, expected, found, len(kept) == 1))
    return findings
