from __future__ import annotations

import fnmatch
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.planning.labels import LABELS, LabelRules, Labels, asks_for_domain, judged_rules
from pipelines.planning.splits import WHERE
from pipelines.recipe import Recipe, SourceSettings, parse_recipe

TABLES = [
    {"glob": "a"},
    {"glob": "b", "domain": "books", "licence": "CC0", "priority": -3},
    {"glob": "c", "domain": "books", "priority": 2},
]
RULES = [{"name": "wiki", "hosts": ["*.wiki.example", "wiki.*"]}, {"name": "web", "hosts": ["b.example"]}]
HOSTS = [None, "", "a.example", "b.example", "en.wiki.example", "wiki.net"]


def recipe(tables: Any = TABLES, **keys: Any) -> Recipe:
    return parse_recipe({"sources": tables, **keys}, "t")


def labels(of: Recipe, positions: dict[int, int]) -> Labels:
    rows = sorted(positions.items())
    indices, settings = (np.array([row[at] for row in rows], np.int32) for at in (0, 1))
    return Labels(LabelRules.of(of), indices, settings)


POSITIONS = st.dictionaries(st.integers(0, 30), st.integers(0, 2), min_size=1)


@given(POSITIONS, st.data(), st.booleans(), st.booleans())
def test_joined_labels_are_those_of_each_row(
    positions: dict[int, int], data: st.DataObject, with_rules: bool, as_table: bool
) -> None:
    of = recipe(domains=RULES if with_rules else [])
    rows = data.draw(st.lists(st.tuples(st.sampled_from(sorted(positions)), st.sampled_from(HOSTS)), max_size=8))

    def slow(index: int, host: str | None) -> dict[str, Any]:
        own = of.sources[positions[index]]
        rule = next((r for r in of.domains if host and any(fnmatch.fnmatchcase(host, p) for p in r.hosts)), None)
        return {
            "source_index": index,
            "host": host,
            "domain": rule.name if rule else own.domain,
            "licence": own.licence,
            "priority": own.priority,
        }

    stale = {"domain": "stale", "licence": "stale"}
    schema = pa.schema(
        [("source_index", pa.int32()), ("host", pa.string()), ("domain", pa.string()), ("licence", pa.string())]
    )
    batch = pa.RecordBatch.from_pylist([{"source_index": i, "host": h, **stale} for i, h in rows], schema=schema)
    given = pa.Table.from_batches([batch.slice(0, 3), batch.slice(3)]) if as_table else batch
    found = labels(of, positions).join(given)
    assert type(found) is type(given)
    assert found.to_pylist() == [slow(index, host) for index, host in rows]
    assert found.schema.field("priority").type == pa.int32()
    only = labels(of, positions).join(given, ["licence"])
    assert only.schema == given.schema
    assert [row["domain"] for row in only.to_pylist()] == ["stale"] * len(rows)


def test_the_batch_before_judging_keeps_its_schema_and_metadata() -> None:
    schema = pa.schema([("source_index", pa.int32()), ("host", pa.string()), pa.field("domain", pa.string(), False)])
    rows = [{"source_index": 4, "host": "b.example", "domain": ""}, {"source_index": 5, "host": None, "domain": ""}]
    batch = pa.RecordBatch.from_pylist(rows, schema.with_metadata({"unit": "u"}))
    found = labels(recipe(domains=RULES), {4: 1, 5: 1}).with_domain(batch)
    assert found.column("domain").to_pylist() == ["web", "books"]
    assert found.schema.equals(batch.schema, check_metadata=True)


def test_rows_without_hosts_are_enough_where_no_rule_asks_for_one() -> None:
    rows = pa.table({"source_index": pa.array([1, 0], pa.int32())})
    assert labels(recipe(), {0: 0, 1: 1}).join(rows).to_pylist() == [
        {"source_index": 1, "domain": "books", "licence": "CC0", "priority": -3},
        {"source_index": 0, "domain": "web", "licence": None, "priority": 0},
    ]


@pytest.mark.parametrize("index", [0, 2, 9])
def test_a_source_that_the_plan_does_not_have_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match="the plan has no source"):
        labels(recipe(), {1: 0, 3: 0}).licence(pa.array([1, index], pa.int32()))


def test_a_splits_labels_are_those_of_its_sources() -> None:
    found = LabelRules.of(recipe()).labels([(7, 1, 1), (9, 1, 0)])
    assert found.priority(pa.array([9, 7, 7], pa.int32())).to_pylist() == [0, -3, -3]
    assert LabelRules.of(recipe()).labels([]).priority(pa.array([], pa.int32())).to_pylist() == []


@given(POSITIONS)
def test_digests_follow_labels_and_not_how_the_recipe_says_them(positions: dict[int, int]) -> None:
    before = labels(recipe(), positions)
    turned = labels(recipe(TABLES[::-1]), {index: 2 - at for index, at in positions.items()})
    more = labels(recipe([*TABLES, {"glob": "d", "domain": "code", "priority": 9}]), positions)
    for name in LABELS:
        assert turned.digest([name]) == more.digest([name]) == before.digest([name])
    changed = labels(recipe([{**table, "priority": 5} for table in TABLES]), positions)
    assert changed.digest(["priority"]) != before.digest(["priority"])
    assert changed.digest(["domain", "licence"]) == before.digest(["domain", "licence"])
    ruled = labels(recipe(domains=RULES), positions)
    assert ruled.digest(["domain"]) != before.digest(["domain"])
    assert ruled.digest(["licence", "priority"]) == before.digest(["licence", "priority"])
    fewer = labels(recipe(), {index + 31: at for index, at in positions.items()})
    assert fewer.digest(["priority"]) != before.digest(["priority"])


@pytest.mark.parametrize(
    ("stages", "asks"),
    [
        ([], False),
        ([{"use": "gopher_quality_v2"}], False),
        ([{"use": "gopher_quality_v2", "domains": []}], False),
        ([{"use": "gopher_repetition_v2"}, {"use": "gopher_quality_v2", "domains": ["web"]}], True),
    ],
)
def test_only_stages_with_domains_ask_for_the_domain(stages: list[dict[str, Any]], asks: bool) -> None:
    of = recipe(stages=stages, domains=RULES)
    assert asks_for_domain(of) is asks
    assert bool(judged_rules(of)) is asks


def test_every_setting_of_a_source_is_where_it_lies_a_label_or_decides_what_is_read() -> None:
    reading = {"format", "text_key", "url_key", "date_key", "max_record_bytes", "min_status", "max_status"}
    assert set(SourceSettings.model_fields) == reading | set(LABELS) | set(WHERE)
