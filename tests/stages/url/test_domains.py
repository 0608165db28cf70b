from __future__ import annotations

import fnmatch
from collections.abc import Callable

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages.url.domains import HostRules, assign

Batches = Callable[..., pa.RecordBatch]

RULES = [("wiki", ["*.wikipedia.org", "wiki.*"]), ("best", ["good.example"]), ("rest", ["*.example", "*.org"])]


def domains(documents: Batches, hosts: list[str | None], rules: object = RULES) -> list[str]:
    return assign(documents(len(hosts), host=hosts), rules).column("domain").to_pylist()  # type: ignore[arg-type]


def test_the_first_rule_that_matches_wins(documents: Batches) -> None:
    hosts = ["en.wikipedia.org", "wikipedia.org", "good.example", "also.good.example", "wiki.example", "x.net", None]
    assert domains(documents, hosts) == ["wiki", "rest", "best", "rest", "wiki", "web", "web"]


def test_patterns_match_whole_hosts_and_dots_are_dots(documents: Batches) -> None:
    rules = [("code", ["git.example"])]
    assert domains(documents, ["git.example", "gitXexample", "git.example.net", "my.git.example"], rules) == [
        "code",
        "web",
        "web",
        "web",
    ]


def test_upper_case_patterns_match_hosts(documents: Batches) -> None:
    assert domains(documents, ["good.example"], [("best", ["GOOD.Example"])]) == ["best"]


def test_rows_schema_and_metadata_stay(documents: Batches) -> None:
    batch = documents(2, host=["good.example", None]).replace_schema_metadata({"headrace.unit": "u"})
    found = assign(batch, RULES)
    assert found.schema.equals(batch.schema, check_metadata=True)
    assert found.drop_columns(["domain"]).equals(batch.drop_columns(["domain"]))
    assert assign(batch.slice(0, 0), RULES).num_rows == 0


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hosts=st.lists(st.none() | st.text("ab.", max_size=4), max_size=6),
    patterns=st.lists(st.lists(st.text("ab.*?", min_size=1, max_size=4), min_size=1, max_size=3), max_size=3),
)
def test_agrees_with_fnmatch_one_by_one(documents: Batches, hosts: list[str | None], patterns: list[list[str]]) -> None:
    rules = [(f"d{number}", hosts_of) for number, hosts_of in enumerate(patterns)]

    def slow(host: str | None) -> str:
        matching = (name for name, those in rules if host and any(fnmatch.fnmatchcase(host, p) for p in those))
        return next(matching, "web")

    assert domains(documents, hosts, rules) == [slow(host) for host in hosts]


PATTERNS = st.text("ab.*?[]!", min_size=1, max_size=5) | st.sampled_from(
    ["*.a", "*.b.a", "*.", "*", "a.b", "*.a*", "*.A"]
)


@settings(deadline=None, max_examples=300)
@given(
    hosts=st.lists(st.none() | st.text("ab.", max_size=6), max_size=6),
    rules=st.lists(st.lists(PATTERNS, min_size=1, max_size=4), max_size=4),
)
def test_tables_of_hosts_and_suffixes_decide_as_patterns_do(hosts: list[str | None], rules: list[list[str]]) -> None:
    def slow(host: str | None) -> str | None:
        lowered = [(f"d{number}", [pattern.lower() for pattern in patterns]) for number, patterns in enumerate(rules)]
        return next((n for n, ps in lowered if host and any(fnmatch.fnmatchcase(host, p) for p in ps)), None)

    found = HostRules([(f"d{number}", patterns) for number, patterns in enumerate(rules)])
    assert found.domains(pa.array(hosts, pa.string())).to_pylist() == [slow(host) for host in hosts]


def test_a_host_of_thousands_of_dots_costs_no_more_than_the_longest_suffix() -> None:
    rules = HostRules([("a", ["*.example"])])
    hostile = "." * 2_000_000
    assert rules.domains(pa.array([hostile, hostile + ".example"])).to_pylist() == [None, "a"]
