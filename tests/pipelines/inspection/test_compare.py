from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.inspection.compare import End, Move, compare, links, unlike_sources
from pipelines.inspection.funnel import StageCounts


def link(name: str) -> StageCounts:
    return StageCounts(name, 0, 0, {}, {})


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [("abc", "abc", "abc"), ("ac", "abc", "abc"), ("abc", "ac", "abc"), ("ab", "bc", "abc"), ("", "ab", "ab")],
)
def test_links_of_both_are_in_the_order_of_each(before: str, after: str, wanted: str) -> None:
    assert links(tuple(map(link, before)), tuple(map(link, after))) == list(wanted)


def test_a_run_and_itself_differ_in_nothing(made: Any) -> None:
    found = compare(made.run, made.run)
    assert (found.changed, found.counts_only, found.moved) == ((), None, {})
    assert found.same == len(made.verdicts())


def test_splits_and_ranges_move_no_document(made: Any, cut_fine: Any) -> None:
    found = compare(made.run, cut_fine.run)
    assert {key for key, _, _ in found.changed} == {"split_bytes", "dedup.range_bytes", "dedup.piece_bytes"}
    assert (found.counts_only, found.moved, found.same) == (None, {}, len(made.verdicts()))


@pytest.fixture
def tighter(corpus: Any, run_recipe: Any, tmp_path: Path) -> Any:
    """The run with another limit, and in other splits."""
    table = corpus.recipe(split_bytes=45_000)
    table["stages"][0]["min_words"] = 70
    return run_recipe(tmp_path / "out", table, corpus.folder)


def test_every_document_that_moved_is_counted_once(made: Any, tighter: Any) -> None:
    found = compare(made.run, tighter.run)
    assert ("gopher_quality_v2.min_words", 20.0, 70.0) in found.changed
    wanted: Counter[Move] = Counter()
    rows = made.verdicts(), tighter.verdicts()
    for mine, theirs in zip(*rows, strict=True):
        assert mine["doc_id"] == theirs["doc_id"]
        ends = [End(row["dropped_by"], row["reason"], row["failed"]) for row in (mine, theirs)]
        wanted[Move(*ends, mine["language"], mine["domain"])] += 1
    assert found.counts_only is None
    assert found.moved == {move: rows for move, rows in wanted.items() if move.before != move.after}
    assert sum(found.moved.values()) > 10
    assert found.same + sum(found.moved.values()) == len(rows[0])
    plain = json.loads(json.dumps(found.to_json()))
    assert sum(one["documents"] for one in plain["moved"]) == sum(found.moved.values())
    sides = {one["name"]: one for one in plain["stages"]}["gopher_quality_v2"]
    assert sides["before"]["dropped"]["too_few_words"] < sides["after"]["dropped"]["too_few_words"]


def test_other_bytes_are_compared_by_counts_alone(made: Any, corpus: Any, run_recipe: Any, tmp_path: Path) -> None:
    shutil.copytree(corpus.folder, tmp_path / "in")
    same = run_recipe(tmp_path / "same", corpus.recipe(), tmp_path / "in")
    assert compare(made.run, same.run).same == len(made.verdicts())
    path = tmp_path / "in" / "web-0.jsonl"
    path.write_bytes(path.read_bytes().replace(b"the", b"The", 1))
    other = run_recipe(tmp_path / "other", corpus.recipe(), tmp_path / "in")
    assert compare(made.run, other.run).counts_only == "source 1, web-0.jsonl, is not the same bytes in both"


def test_other_sources_are_compared_by_counts_alone(made: Any, corpus: Any, run_recipe: Any, tmp_path: Path) -> None:
    table = corpus.recipe(sources=[{"glob": "web-*.jsonl"}], domains=None, stages=None, lm=None)
    found = compare(made.run, run_recipe(tmp_path / "less", table, corpus.folder).run)
    assert found.counts_only == "one run reads 4 sources, the other 3"
    assert (found.moved, found.same) == ({}, 0)
    assert unlike_sources(made.run, made.run) is None
