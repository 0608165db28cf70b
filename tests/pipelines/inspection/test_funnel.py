from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.inspection import funnel
from pipelines.inspection.funnel import Fate, Report, StageCounts
from pipelines.passes.drops import FATE
from pipelines.passes.drops import SCHEMA as DROPS
from pipelines.passes.write import FAILURES
from pipelines.plan import save_plan
from pipelines.planning.sources import SourceTable
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.tables import publish_table
from pipelines.workspace import Workspace
from shards.errors import IncompleteError
from shards.manifest import PassFolder
from tests.pipelines.support import plan_of

STAGES = ["read", "language_v1", "perplexity_v1", "perplexity_v1:late", "exact_dedup_v1", "near_dedup_v1", "tokenizer"]
DOMAINS = ("web", "code")
RECIPE = parse_recipe(
    {
        "sources": [{"glob": "*", "domain": domain} for domain in DOMAINS],
        "stages": [{"use": "language_v1"}, {"use": "perplexity_v1", "min_perplexity": {"percentile": 5}}],
    },
    "here",
)
JUDGED = [
    (None, None, False),
    ("read", "empty", False),
    ("read", "truncated", True),
    ("language_v1", "too_short", False),
    ("perplexity_v1", "no_words", False),
]
LATE = [("perplexity_v1:late", "too_plain"), ("exact_dedup_v1", "exact_duplicate"), ("near_dedup_v1", "near_duplicate")]

records = st.lists(
    st.tuples(
        st.sampled_from(JUDGED),
        st.sampled_from(["en", "de", "und"]),
        st.sampled_from(DOMAINS),
        st.none() | st.sampled_from(LATE),
    ),
    max_size=30,
)
Record = tuple[tuple[str | None, str | None, bool], str, str, tuple[str, str] | None]


def finished(root: Path, splits: Sequence[Sequence[Record]]) -> Run:
    """Write a run's plan and passes as the passes themselves do, for ``splits`` of records; nothing is tokenised."""
    workspace = Workspace.of(str(root), RECIPE, str(root))
    workspace.take_over("key")
    # A source of web and one of code for each split.
    save_plan(workspace.store, plan_of(2 * len(splits), RECIPE, per_split=2), SourceTable())
    run = Run(workspace, "key", {"judge": "j", "drops": "d", "write": "w"})
    doc_id = 0
    for number, split in enumerate(splits):
        rows, late = [], []
        for (dropped_by, reason, failed), language, domain, drop in split:
            row = {"doc_id": doc_id, "dropped_by": dropped_by, "reason": reason, "failed": failed, "value": None}
            rows.append(row | {"language": language, "source_index": 2 * number + DOMAINS.index(domain)})
            if dropped_by is None and drop is not None:
                late.append(rows[-1] | {"dropped_by": drop[0], "reason": drop[1]})
            doc_id += 1
        _commit(run, run.plan.splits.names[number], rows, late)
    for name in ("judge", "drops"):
        folder(run, name).finish(run.plan.splits.names)
    folder(run, "write").finish([])
    return run


def folder(run: Run, name: str) -> PassFolder:
    return PassFolder(run.store, name, run.digests[name])


JUDGED_AS = pa.schema(
    [
        ("doc_id", pa.int64()),
        ("dropped_by", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("value", pa.float64()),
        ("failed", pa.bool_()),
        ("language", pa.string()),
        ("source_index", pa.int32()),
    ]
)
COUNTS = pa.schema([(name, pa.bool_() if name == "failed" else pa.string()) for name in FATE] + [("rows", pa.int64())])


def _commit(run: Run, unit: str, rows: list[dict[str, Any]], late: list[dict[str, Any]]) -> None:
    judged = pa.Table.from_pylist(rows, schema=JUDGED_AS)
    run.job("judge", "j").commit(unit, {"verdicts": publish_table(run.store, judged, "judge/verdicts", unit)})
    drops = pa.Table.from_pylist(
        [{**row, "witness": 0 if "dup" in row["reason"] else None} for row in late], schema=DROPS
    )
    final = {row["doc_id"]: row for row in [*rows, *late]}
    fates = Counter(
        tuple(row[name] if name != "domain" else DOMAINS[row["source_index"] % 2] for name in FATE)
        for row in final.values()
    )
    counts = pa.Table.from_pylist(
        [dict(zip(FATE, fate, strict=True)) | {"rows": count} for fate, count in fates.items()], COUNTS
    )
    files = {"drops": publish_table(run.store, drops, "drops/drops", unit)}
    run.job("drops", "d").commit(unit, files, tables={"counts": counts})


def check_funnel(funnel: tuple[StageCounts, ...]) -> None:
    before = None
    for link in funnel:
        assert link.seen == link.kept + sum(link.dropped.values()) + link.failed
        assert min(link.seen, link.kept, link.failed, *link.dropped.values(), 0) == 0
        assert before is None or link.seen == before
        before = link.kept


def check_adds_up(found: Report) -> None:
    for links in (found.stages, *found.languages.values(), *found.domains.values()):
        check_funnel(links)
    for groups in (found.languages, found.domains):
        for position, link in enumerate(found.stages):
            mine = [funnel[position] for funnel in groups.values()]
            assert link.seen == sum(one.seen for one in mine)
            assert link.kept == sum(one.kept for one in mine)
            assert link.dropped == dict(sum((Counter(one.dropped) for one in mine), Counter()))
            assert link.failures == dict(sum((Counter(one.failures) for one in mine), Counter()))


@given(records)
def test_every_record_is_counted_once_at_every_stage(split: list[Record]) -> None:
    counts: Counter[Fate] = Counter()
    for (dropped_by, reason, failed), language, domain, _ in split:
        counts[Fate(dropped_by, reason, failed, language, domain)] += 1
    found = funnel.report_of(counts, STAGES)
    assert found.stages[0].seen == len(split)
    assert found.stages[-1].kept == sum(1 for (dropped_by, _, _), *_ in split if dropped_by is None)
    check_adds_up(found)


@pytest.mark.integration
@settings(max_examples=12, deadline=None)
@given(st.lists(records, min_size=1, max_size=3))
def test_markers_and_verdict_tables_agree(tmp_path_factory: pytest.TempPathFactory, splits: list[list[Record]]) -> None:
    run = finished(tmp_path_factory.mktemp("run"), splits)
    found = funnel.report(run)
    check_adds_up(found)
    assert found == funnel.recounted(run)
    late = sum(1 for split in splits for (dropped_by, _, _), _, _, drop in split if drop and dropped_by is None)
    judged = sum(1 for split in splits for (dropped_by, _, _), *_ in split if dropped_by is None)
    assert found.stages[-1].kept == judged - late


@pytest.mark.integration
@settings(max_examples=6, deadline=None)
@given(records, st.integers(0, 30))
def test_cutting_a_split_in_two_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, split: list[Record], cut: int
) -> None:
    whole = funnel.report(finished(tmp_path_factory.mktemp("whole"), [split]))
    assert whole == funnel.report(finished(tmp_path_factory.mktemp("cut"), [split[:cut], split[cut:]]))


def test_a_stage_that_the_recipe_lost_is_an_error_and_no_silent_loss() -> None:
    counts = {Fate("old_v1", "x", False, "en", "web"): 1}
    with pytest.raises(IncompleteError, match="old_v1"):
        funnel.report_of(counts, STAGES)


def test_an_unfinished_run_has_no_report(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", [[]])
    (tmp_path / "run" / "drops" / "manifest.json").unlink()
    with pytest.raises(IncompleteError):
        funnel.report(run)


def test_duplicates_count_their_distinct_witnesses(tmp_path: Path) -> None:
    kept: Record = ((None, None, False), "en", "web", None)
    exact: Record = ((None, None, False), "en", "web", LATE[1])
    near: Record = ((None, None, False), "en", "web", LATE[2])
    run = finished(tmp_path / "run", [[kept, exact], [exact, near]])
    assert [vars(kind) for kind in funnel.duplicates(run)] == [
        {"stage": "exact_dedup_v1", "removed": 2, "witnesses": 1, "largest": 2, "unwitnessed": 0, "limited": 0},
        {"stage": "near_dedup_v1", "removed": 1, "witnesses": 1, "largest": 1, "unwitnessed": 0, "limited": 0},
    ]
    # Where the witness itself is removed, that shows.
    wrong = finished(tmp_path / "wrong", [[exact, near]])
    assert [kind.unwitnessed for kind in funnel.duplicates(wrong)] == [1, 1]


def test_tokens_are_added_up_over_units_by_domain_and_language(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", [[]])
    for unit in ("0", "1"):
        statistics = {
            "shards": {
                "web": {"train": [{"rows": 2, "token_count": 20}], "held_out": [{"rows": 1, "token_count": 5}]},
                "code": {"train": [{"rows": 1, "token_count": 7}, {"rows": 1, "token_count": 8}]},
            },
            "languages": {"en": {"documents": 5, "tokens": 40}},
        }
        run.job("write", "w").commit(unit, {}, statistics, {"failures": FAILURES.empty_table()})
    folder(run, "write").finish(["0", "1"])
    assert funnel.tokens_by_domain(run) == {
        "code": funnel.Tokens(documents=4, tokens=30),
        "web": funnel.Tokens(documents=4, tokens=40, held_out_documents=2, held_out_tokens=10),
    }
    assert funnel.tokens_by_language(run) == {"en": 80}
    value = funnel.report_json(run)
    assert [stage["name"] for stage in value["stages"]] == STAGES
    assert set(value) == {"stages", "domains", "languages", "edits", "duplicates", "left_out"}


def test_what_the_tokeniser_fails_on_is_a_failure_of_its_own_link(tmp_path: Path) -> None:
    kept: Record = ((None, None, False), "en", "web", None)
    run = finished(tmp_path / "run", [[kept, kept], [kept]])
    row = {"doc_id": 2, "reason": "stage_error", "detail": "said so", "language": "en", "domain": "web"}
    run.job("write", "w").commit("0", {}, {}, {"failures": pa.Table.from_pylist([row], FAILURES)})
    folder(run, "write").finish(["0"])
    # As who opens the run again.
    run = Run(run.workspace, run.key, run.digests)
    found = funnel.report(run)
    assert vars(found.stages[-1]) == {
        "name": "tokenizer",
        "seen": 3,
        "kept": 2,
        "dropped": {},
        "failures": {"stage_error": 1},
    }
    check_adds_up(found)
    assert found == funnel.recounted(run)
