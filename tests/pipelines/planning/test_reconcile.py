from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.plan import Plan, load_plan, load_sources, make_plan, save_plan
from pipelines.planning.digests import DIGESTS, Digests
from pipelines.planning.probe import span_digest
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from shards.errors import UserError


def workspace(base: Path, span_bytes: int = 20, **settings: Any) -> Workspace:
    sources = [{"glob": "*.jsonl", **settings}]
    recipe = parse_recipe({"sources": sources, "split_bytes": 20, "span_bytes": span_bytes}, "test")
    return Workspace.of(str(base / "out"), recipe, str(base))


def planned(made: Workspace, **options: Any) -> Plan:
    plan = make_plan(made, **options)
    save_plan(made.store, plan, load_sources(made.store))
    made.save_recipe()
    return plan


def fill(folder: Path, **sizes: int) -> None:
    for name, size in sizes.items():
        (folder / f"{name}.jsonl").write_bytes(name.encode()[:1] * size)


@dataclass(frozen=True)
class Span:
    begin: int
    end: int


def tens(path: str, size: int, target_bytes: int, source_format: str, open_input: Any) -> Sequence[Span]:
    """Cut a file every ten bytes."""
    return [Span(begin, min(begin + 10, size)) for begin in range(0, size, 10)]


def test_a_large_file_is_several_sources(tmp_path: Path) -> None:
    fill(tmp_path, a=5, b=35, c=5)
    made = workspace(tmp_path)
    plan = planned(made, cut=tens)
    spans = [(s.index, s.path[0], s.begin, s.end, s.span) for split in plan.splits for s in split.sources]
    assert spans == [
        (0, "a", 0, 5, None),
        (1, "b", 0, 10, (0, 10)),
        (2, "b", 10, 20, (10, 20)),
        (3, "b", 20, 30, (20, 30)),
        (4, "b", 30, 35, (30, 35)),
        (5, "c", 0, 5, None),
    ]
    assert [split.size for split in plan.splits] == [15, 20, 10]
    assert (plan.size, plan.totals(1)) == (45, [(3, 45)])
    # A known file keeps its spans, however files are cut by now; only fresh ones are cut.
    fill(tmp_path, d=25)
    assert planned(made).splits[:2] == plan.splits[:2]
    # What a source is does not depend on how sources are grouped.
    wide = Workspace(made.store, made.recipe.model_copy(update={"split_bytes": 1000}), made.base)
    assert [source.span_bytes for source in make_plan(wide).splits[0].sources] == [5, 10, 10, 10, 5, 5, 25]
    assert load_plan(made.store) == make_plan(made)
    with pytest.raises(UserError, match=r"'b\.jsonl' was cut into spans as format 'auto', and is now 'jsonl'"):
        planned(workspace(tmp_path, format="jsonl"))


def test_a_file_is_cut_evenly(tmp_path: Path) -> None:
    asked: list[tuple[int, int, str]] = []

    def asking(path: str, size: int, target_bytes: int, source_format: str, open_input: Any) -> Sequence[Span]:
        asked.append((size, target_bytes, source_format))
        return [Span(0, size)]

    fill(tmp_path, a=20, b=21, c=100)
    make_plan(workspace(tmp_path), cut=asking)
    assert asked == [(21, 11, "auto"), (100, 20, "auto")]


@pytest.mark.parametrize("spans", [[(0, 10)], [(0, 20), (15, 35)], [(5, 35)], [(0, 0), (0, 35)], []])
def test_spans_that_do_not_cover_a_file_are_a_bug(tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    fill(tmp_path, a=35)
    with pytest.raises(AssertionError, match="do not cover"):
        make_plan(workspace(tmp_path), cut=lambda *_: [Span(*span) for span in spans])


def test_an_edit_in_a_later_span_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, a=400_000)
    made = workspace(tmp_path, span_bytes=100_000)
    plan = planned(made, cut=lambda path, size, *_: [Span(0, size // 2), Span(size // 2, size)])
    # As judging does, for the second of the two.
    source = plan.splits[1].sources[0]
    digest = span_digest(str(tmp_path / "a.jsonl"), source.begin, source.end)
    table = pa.table({"source_index": [source.index], "digest": [digest]}, schema=DIGESTS)
    Digests().merged([table], plan.sources, "out").save(made.store)
    with (tmp_path / "a.jsonl").open("r+b") as file:
        file.seek(300_000)
        file.write(b"X")
    with pytest.raises(UserError, match=r"'a\.jsonl' has changed"):
        planned(made)


def test_a_source_that_may_not_be_read_is_the_users_to_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, a=1)

    def denied(path: str, size: int) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("pipelines.planning.reconcile.probe_checksum", denied)
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        make_plan(workspace(tmp_path))
