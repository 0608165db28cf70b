from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.demo.check import Finding, check, summary
from pipelines.demo.planted import KEPT, Item, Planted

EXACT = ("exact_dedup_v1/exact_duplicate",)
NEAR = ("near_dedup_v1/near_duplicate",)
PLANTED = Planted(
    (
        Item("near miss", "u:miss", (KEPT,)),
        Item("spam", "u:spam", ("gopher_repetition_v2",)),
        Item("salad", "u:salad", ("perplexity_v1:late/too_chaotic",)),
        Item("copy", "u:a", EXACT, "copies", {"u:b": 1.0, "u:c": 1.0}),
        Item("copy", "u:b", EXACT, "copies", {"u:a": 1.0, "u:c": 1.0}),
        Item("copy", "u:c", EXACT, "copies", {"u:a": 1.0, "u:b": 1.0}),
        Item("edited", "u:x", NEAR, "edits", {"u:y": 0.93}),
        Item("edited", "u:y", NEAR, "edits", {"u:x": 0.93}),
        Item("damage", "", ("read/bad_json",), beside="u:beside"),
    )
)


def row(
    doc_id: int, url: str | None, dropped_by: str | None = None, reason: str | None = None, **more: Any
) -> dict[str, Any]:
    base = {"source_index": 0, "failed": False, "witness": None, "jaccard": None}
    return {"doc_id": doc_id, "url": url, "dropped_by": dropped_by, "reason": reason, **base, **more}


def right() -> list[dict[str, Any]]:
    return [
        row(1, "u:miss"),
        row(2, "u:miss", "read", "not_a_document"),
        row(3, "u:spam", "gopher_repetition_v2", "duplicate_lines"),
        row(4, "u:salad", "perplexity_v1:late", "too_chaotic"),
        row(5, "u:a"),
        row(6, "u:b", "exact_dedup_v1", "exact_duplicate", witness=5),
        row(7, "u:c", "exact_dedup_v1", "exact_duplicate", witness=5, jaccard=1.0),
        row(8, "u:x", "near_dedup_v1", "near_duplicate", witness=9, jaccard=0.931),
        row(9, "u:y"),
        row(10, "u:beside", source_index=1),
        row(11, None, "read", "bad_json", failed=True, source_index=1),
        row(12, "u:other", source_index=1),
    ]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    text, integer = pa.string(), pa.int64()
    types = [integer, text, text, text, pa.int32(), pa.bool_(), integer, pa.float64()]
    schema = pa.schema(list(zip(rows[0], types, strict=True)))
    return pa.Table.from_pylist(rows, schema)


def wrong(rows: list[dict[str, Any]]) -> list[Finding]:
    return [finding for finding in check(table(rows), PLANTED) if not finding.ok]


@given(st.permutations(right()))
@settings(max_examples=20, deadline=None)
def test_a_right_run_passes_in_any_order_of_its_rows(rows: list[dict[str, Any]]) -> None:
    assert wrong(rows) == []


def test_there_is_a_finding_for_every_item_and_one_for_every_group() -> None:
    findings = check(table(right()), PLANTED)
    assert len(findings) == len(PLANTED.items) + 2
    assert summary(findings) == [
        ("near miss", 1, 1),
        ("spam", 1, 1),
        ("salad", 1, 1),
        ("copy", 3, 3),
        ("edited", 2, 2),
        ("damage", 1, 1),
        ("copy group", 1, 1),
        ("edited group", 1, 1),
    ]


@given(
    st.sampled_from(
        [n for n, one in enumerate(right()) if one["url"] != "u:other" and one["reason"] != "not_a_document"]
    )
)
@settings(max_examples=20, deadline=None)
def test_a_record_that_is_missing_is_noticed(position: int) -> None:
    rows = right()
    del rows[position]
    assert wrong(rows)


@pytest.mark.parametrize(
    ("position", "change", "kind"),
    [
        (0, {"dropped_by": "url_blacklist_v1", "reason": "blacklisted_url"}, "near miss"),
        (2, {"dropped_by": None, "reason": None}, "spam"),
        (3, {"reason": "too_plain"}, "salad"),
        (5, {"dropped_by": None, "reason": None, "witness": None}, "copy group"),
        (5, {"dropped_by": "near_dedup_v1", "reason": "near_duplicate"}, "copy"),
        (5, {"witness": None}, "copy"),
        (5, {"witness": 7}, "copy"),
        (5, {"witness": 9}, "copy"),
        (7, {"witness": 10}, "edited"),
        (7, {"jaccard": 0.7}, "edited"),
        (8, {"dropped_by": "perplexity_v1", "reason": "too_plain"}, "edited group"),
        (10, {"failed": False}, "damage"),
        (10, {"reason": "bad_encoding"}, "damage"),
        (11, {"dropped_by": "read", "reason": "bad_json", "failed": True}, "damage"),
    ],
)
def test_a_wrong_verdict_is_noticed(position: int, change: dict[str, Any], kind: str) -> None:
    rows = right()
    rows[position] |= change
    assert kind in {finding.kind for finding in wrong(rows)}


def test_two_documents_under_one_address_are_noticed() -> None:
    rows = [*right(), row(13, "u:spam", "gopher_repetition_v2", "duplicate_lines")]
    (finding,) = wrong(rows)
    assert "more than once" in finding.found


def test_a_group_of_which_none_survives_is_noticed() -> None:
    rows = right()
    rows[4] |= {"dropped_by": "exact_dedup_v1", "reason": "exact_duplicate", "witness": 6}
    assert {finding.kind for finding in wrong(rows)} == {"copy", "copy group"}
