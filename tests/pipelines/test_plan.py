from __future__ import annotations

import os
import random
import shutil
import time
import uuid
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.plan import Plan, load_plan, load_sources, make_plan, save_plan
from pipelines.planning.digests import DIGESTS, Digests
from pipelines.planning.discover import MISSING, Finds
from pipelines.planning.probe import probe_checksum, span_digest
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from shards.errors import IncompleteError, UserError
from shards.store import Store


def workspace(base: Path, sources: Any = "*.jsonl", split_bytes: int = 100, **keys: Any) -> Workspace:
    tables = [{"glob": sources}] if isinstance(sources, str) else sources
    recipe = parse_recipe({"sources": tables, "split_bytes": split_bytes, **keys}, "test")
    return Workspace.of(str(base / "out"), recipe, str(base))


def planned(made: Workspace) -> Plan:
    plan = make_plan(made, load_sources(made.store))
    save_plan(made.store, plan, load_sources(made.store))
    made.save_recipe()
    return plan


def fill(folder: Path, **sizes: int) -> None:
    for name, size in sizes.items():
        (folder / f"{name}.jsonl").write_bytes(name.encode()[:1] * size)


def paths(plan: Plan) -> list[list[str]]:
    return [[source.path for source in split.sources] for split in plan.splits]


def missing(plan: Plan) -> list[str]:
    return [row["path"] for row in plan.left_out.to_pylist() if row["why"] == MISSING]


def indices(plan: Plan) -> list[list[int]]:
    return [[source.index for source in split.sources] for split in plan.splits]


def read_all(made: Workspace, plan: Plan) -> None:
    """Record the digests of all sources, as judging does."""
    sources = [source for split in plan.splits for source in split.sources]
    rows = [(s.index, span_digest(made.input_path(s.path), s.begin, s.end)) for s in sources]
    table = pa.table({"source_index": [i for i, _ in rows], "digest": [d for _, d in rows]}, schema=DIGESTS)
    Digests.load(made.store).merged([table], plan.sources, made.store.root).save(made.store)


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in (folder / "plan").rglob("*") if path.is_file() and path.name != "seen.arrow")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=8), split_bytes=st.integers(1, 200))
def test_splits_partition_the_sources_and_stay_under_their_size(
    tmp_path: Path, sizes: list[int], split_bytes: int
) -> None:
    base = tmp_path / uuid.uuid4().hex
    base.mkdir()
    fill(base, **{f"s{number}": size for number, size in enumerate(sizes)})
    plan = make_plan(workspace(base, split_bytes=split_bytes))
    assert [source.size for split in plan.splits for source in split.sources] == sizes
    assert [source.index for split in plan.splits for source in split.sources] == list(range(len(sizes)))
    assert all(split.size <= split_bytes or len(split.sources) == 1 for split in plan.splits)
    assert plan.size == sum(sizes)
    # Greedy: no split could have taken the first source of the next.
    for split, following in zip(plan.splits, plan.splits[1:], strict=False):
        assert split.size + following.sources[0].size > split_bytes
    assert make_plan(workspace(base, split_bytes=split_bytes)) == plan


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), globs=st.permutations(["a*", "b*", "*.jsonl", "./c*"]))
def test_any_order_of_discovery_gives_the_same_table(tmp_path: Path, seed: int, globs: list[str]) -> None:
    base = tmp_path / uuid.uuid4().hex
    base.mkdir()
    names = [f"{letter}{number}" for letter in "abc" for number in range(3)]
    random.Random(seed).shuffle(names)
    fill(base, **dict.fromkeys(names, 60))
    lines = [f"{name}.jsonl\n" for name in names]
    (base / "list.txt").write_text("".join(lines))
    by_name = make_plan(workspace(base))
    assert paths(by_name) == [[f"{name}.jsonl"] for name in sorted(names)]
    assert make_plan(workspace(base, [{"glob": globs}])) == by_name
    assert make_plan(workspace(base, [{"list": "list.txt"}])) == by_name
    assert make_plan(workspace(base, [{"glob": "b*", "list": "list.txt"}])) == by_name


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(st.sets(st.sampled_from("abcdefghij"), min_size=1), min_size=1, max_size=4),
    size=st.integers(1, 120),
)
def test_added_files_keep_every_index_and_every_full_split(tmp_path: Path, rounds: list[set[str]], size: int) -> None:
    base = tmp_path / uuid.uuid4().hex
    base.mkdir()
    known: dict[str, int] = {}
    before: Plan | None = None
    for names in rounds:
        fill(base, **dict.fromkeys(names, size))
        plan = planned(workspace(base))
        found = {source.path: source.index for split in plan.splits for source in split.sources}
        fresh = sorted(found.keys() - known.keys())
        assert found == known | {path: len(known) + number for number, path in enumerate(fresh)}
        if before is not None:
            assert plan.splits.names[: len(before.splits) - 1] == before.splits.names[:-1]
        known, before = found, plan


def test_the_table_does_not_depend_on_where_when_or_how_files_were_made(tmp_path: Path) -> None:
    for folder, names in (("one", "abc"), ("other", "cba")):
        (tmp_path / folder).mkdir()
        fill(tmp_path / folder, **dict.fromkeys(names, 60))
        os.utime(tmp_path / folder / "a.jsonl", (0, len(folder)))
    assert planned(workspace(tmp_path / "one")) == planned(workspace(tmp_path / "other"))
    assert content(tmp_path / "one" / "out") == content(tmp_path / "other" / "out") != {}


def test_added_files_come_after_and_leave_full_splits_alone(tmp_path: Path) -> None:
    fill(tmp_path, b=60, d=60, f=60)
    before = planned(workspace(tmp_path))
    # "a" sorts first, but was seen later: its documents must not move the others' ids.
    fill(tmp_path, a=30, c=60)
    after = planned(workspace(tmp_path))
    assert indices(after) == [[0], [1], [2, 3], [4]]
    assert paths(after) == [["b.jsonl"], ["d.jsonl"], ["f.jsonl", "a.jsonl"], ["c.jsonl"]]
    assert [split.name for split in after.splits[:2]] == [split.name for split in before.splits[:2]]
    assert before.splits[2].name != after.splits[2].name


def test_a_source_that_is_gone_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60, c=60, d=60, e=60)
    planned(workspace(tmp_path))
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(UserError, match=r"the source 'b\.jsonl' that an earlier run.*leave_out_missing = true"):
        planned(workspace(tmp_path))
    for name in "acd":
        (tmp_path / f"{name}.jsonl").unlink()
    with pytest.raises(UserError, match=r"4 sources \('a\.jsonl', 'b\.jsonl', 'c\.jsonl' and 1 more\)"):
        planned(workspace(tmp_path))


def test_a_source_that_is_gone_is_left_out_by_an_explicit_word_and_may_come_back(tmp_path: Path) -> None:
    fill(tmp_path, a=30, b=30, c=60, d=60)
    before = planned(workspace(tmp_path))
    (tmp_path / "b.jsonl").rename(tmp_path / "kept")
    without = planned(workspace(tmp_path, leave_out_missing=True))
    assert indices(without) == [[0], [2], [3]]
    assert missing(without) == ["b.jsonl"]
    assert missing(load_plan(Store(tmp_path / "out"))) == ["b.jsonl"]
    # Its own split alone is another one.
    assert without.splits.names[0] != before.splits.names[0]
    assert without.splits.names[1:] == before.splits.names[1:]
    (tmp_path / "kept").rename(tmp_path / "b.jsonl")
    assert planned(workspace(tmp_path)) == before


def test_what_a_changed_recipe_names_no_longer_is_not_missing(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60)
    planned(workspace(tmp_path))
    narrowed = planned(workspace(tmp_path, "b*"))
    assert (indices(narrowed), missing(narrowed)) == ([[1]], [])
    assert narrowed.left_out.to_pylist() == [{"path": "a.jsonl", "why": "unnamed"}]


def test_a_glob_whose_only_file_is_gone_is_left_out_by_the_same_word(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60)
    tables = [{"glob": "a.jsonl"}, {"glob": "b.jsonl"}]
    planned(workspace(tmp_path, tables))
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(UserError, match="matches no file"):
        planned(workspace(tmp_path, tables))
    assert missing(planned(workspace(tmp_path, tables, leave_out_missing=True))) == ["b.jsonl"]
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(UserError, match="no source is left"):
        planned(workspace(tmp_path, tables, leave_out_missing=True))


@pytest.mark.parametrize("change", ["longer", "first byte", "middle byte", "last byte"])
def test_a_changed_source_is_refused(tmp_path: Path, change: str) -> None:
    size = 300_000
    fill(tmp_path, a=size, b=1)
    planned(workspace(tmp_path))
    data = bytearray((tmp_path / "a.jsonl").read_bytes())
    at = {"first byte": 0, "middle byte": size // 2, "last byte": size - 1}.get(change)
    if at is None:
        data += b"x"
    else:
        data[at] ^= 1
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(UserError, match=r"'a\.jsonl' has changed"):
        planned(workspace(tmp_path))


@pytest.mark.parametrize("restored", [False, True], ids=["time moves", "time set back"])
def test_an_edit_of_equal_length_in_the_middle_is_refused_once_the_source_was_read(
    tmp_path: Path, restored: bool
) -> None:
    fill(tmp_path, a=1_000_000, b=1)
    victim = tmp_path / "a.jsonl"
    made = workspace(tmp_path)
    read_all(made, planned(made))
    planned(made)
    before = victim.stat()
    with victim.open("r+b") as file:
        file.seek(300_000)
        file.write(b"XXXX")
    if restored:
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match=r"'a\.jsonl' has changed"):
        planned(made)
    with victim.open("r+b") as file:
        file.seek(300_000)
        file.write(b"aaaa")
    assert make_plan(made).splits.names == planned(made).splits.names


def test_a_touched_source_is_hashed_once_and_an_untouched_one_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, a=60, b=60)
    made = workspace(tmp_path)
    read_all(made, planned(made))
    hashed: list[str] = []

    def counting(path: str, begin: int, end: int) -> str:
        hashed.append(Path(path).name)
        return span_digest(path, begin, end)

    monkeypatch.setattr("pipelines.planning.reconcile.span_digest", counting)
    planned(made)
    assert hashed == []
    os.utime(tmp_path / "a.jsonl", (1, 1))
    planned(made)
    planned(made)
    assert hashed == ["a.jsonl"]
    # Without the side table every source is looked at again.
    (tmp_path / "out/plan/seen.arrow").write_bytes(b"damaged")
    planned(made)
    assert sorted(hashed) == ["a.jsonl", "a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("change", [{"text_key": "body"}, {"format": "jsonl"}, {"max_record_bytes": 5}])
def test_settings_that_decide_what_is_read_are_part_of_a_splits_name(tmp_path: Path, change: dict[str, Any]) -> None:
    fill(tmp_path, a=60)
    before = make_plan(workspace(tmp_path))
    after = make_plan(workspace(tmp_path, [{"glob": "*.jsonl", **change}]))
    assert before.splits[0].name != after.splits[0].name
    assert make_plan(workspace(tmp_path, [{"glob": ["a.jsonl"]}])).splits[0].name == before.splits[0].name


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    domain=st.sampled_from(["web", "books"]),
    licence=st.none() | st.just("CC0"),
    priority=st.integers(-5, 5),
    hosts=st.lists(st.sampled_from(["*.example", "a.net"]), min_size=1),
)
def test_labels_rename_no_split(
    tmp_path: Path, domain: str, licence: str | None, priority: int, hosts: list[str]
) -> None:
    base = tmp_path / uuid.uuid4().hex
    base.mkdir()
    fill(base, a=60, b=60)
    labels = {"domain": domain, "licence": licence, "priority": priority}
    rules = {"domains": [{"name": "wiki", "hosts": hosts}]}
    before = make_plan(workspace(base))
    assert make_plan(workspace(base, [{"glob": "*", **labels}], **rules)).splits.names == before.splits.names
    divided = [{"glob": "a*", "priority": 7}, {"glob": "b*", **labels}]
    assert make_plan(workspace(base, divided, **rules)).splits.names == before.splits.names
    # Where a stage asks for the domain, a source's domain decides verdicts.
    asking = {"stages": [{"use": "gopher_quality_v2", "domains": ["web"]}]}
    plain, other = (make_plan(workspace(base, [{"glob": "*", "domain": d}], **asking)) for d in ("web", "books"))
    assert plain.splits.names != other.splits.names
    assert (
        make_plan(workspace(base, [{"glob": "*", "priority": priority}], **asking)).splits.names == plain.splits.names
    )


def test_a_file_belongs_to_the_first_table_that_matches(tmp_path: Path) -> None:
    fill(tmp_path, a=10, b=10)
    plan = make_plan(workspace(tmp_path, [{"glob": "b*", "domain": "books"}, {"glob": "*.jsonl"}]))
    assert [(source.path, source.settings) for split in plan.splits for source in split.sources] == [
        ("a.jsonl", 1),
        ("b.jsonl", 0),
    ]
    assert plan.totals(3) == [(1, 10), (1, 10), (0, 0)]


def test_one_file_under_several_names_is_read_once(tmp_path: Path) -> None:
    fill(tmp_path, a=10)
    names = ["a.jsonl", str(tmp_path / "*.jsonl"), f"../{tmp_path.name}/a.jsonl", f"file://{tmp_path}/a.jsonl"]
    assert paths(make_plan(workspace(tmp_path, [{"glob": names}]))) == [["a.jsonl"]]


def test_another_spelling_of_a_known_name_is_the_same_source(tmp_path: Path) -> None:
    fill(tmp_path, a=10)
    before = planned(workspace(tmp_path))
    for spelling in (str(tmp_path / "a.jsonl"), "./a.jsonl", f"file://{tmp_path}/*.jsonl", f"../{tmp_path.name}/a*"):
        again = planned(workspace(tmp_path, spelling))
        assert (again.splits, missing(again)) == (before.splits, [])


def test_a_name_in_any_script_is_fine(tmp_path: Path) -> None:
    (tmp_path / "żółć\u00a0東京.jsonl").write_bytes(b"{}")
    assert paths(planned(workspace(tmp_path))) == [["żółć\u00a0東京.jsonl"]]


@pytest.mark.parametrize("name", [b"\xff.jsonl", b"line\nbreak.jsonl", b"\x1b[31m.jsonl"])
def test_a_name_that_no_report_could_show_is_refused(tmp_path: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
        file.write(b"{}")
    with pytest.raises(UserError, match="control characters"):
        make_plan(workspace(tmp_path))


def test_globs_reach_folders_and_leave_folders_out(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er.jsonl").mkdir(parents=True)
    (tmp_path / "deep" / "er.jsonl" / "x.jsonl").write_bytes(b"x")
    fill(tmp_path, a=1)
    assert paths(make_plan(workspace(tmp_path, "**/*.jsonl"))) == [["a.jsonl", "deep/er.jsonl/x.jsonl"]]
    assert paths(make_plan(workspace(tmp_path, str(tmp_path / "a.jsonl")))) == [[str(tmp_path / "a.jsonl")]]


def test_a_glob_without_a_match_is_the_users_to_fix(tmp_path: Path) -> None:
    fill(tmp_path, a=1)
    with pytest.raises(UserError, match=r"'\*\.warc' matches no file") as caught:
        make_plan(workspace(tmp_path, [{"glob": ["*.jsonl", "*.warc"]}]))
    assert caught.value.place == f"recipe, key sources.0.glob, looked in {tmp_path}"


def test_the_plan_is_saved_whole(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60, c=1)
    made = workspace(tmp_path)
    plan = planned(made)
    loaded = load_plan(made.store)
    assert loaded == plan
    assert loaded.by_name == {split.name: split for split in plan.splits}
    assert list(loaded.splits) == list(plan.splits) == plan.splits[:]
    assert load_sources(made.store).column("path").to_pylist() == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert len(load_sources(Store(tmp_path / "nothing"))) == 0
    assert (loaded.split_of(2), loaded.split_of(3), loaded.path_of(2)) == (plan.splits[1].name, None, "c.jsonl")
    assert list(loaded.rows()) == [("a.jsonl", 60, 0), ("b.jsonl", 60, 0), ("c.jsonl", 1, 0)]


def test_a_plan_that_is_saved_again_leaves_the_same_files(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60)
    made = workspace(tmp_path)
    planned(made)
    before = content(tmp_path / "out")
    planned(made)
    assert content(tmp_path / "out") == before
    fill(tmp_path, c=60)
    planned(made)
    after = content(tmp_path / "out")
    assert len(after) == len(before)
    assert {name for name in after if name in before} >= {"plan/plan.json", "plan/copy/plan.json"}


def test_a_bit_that_flips_in_any_file_of_the_plan_is_found_and_made_good(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60)
    made = workspace(tmp_path)
    read_all(made, planned(made))
    (tmp_path / "b.jsonl").unlink()
    kept = workspace(tmp_path, leave_out_missing=True)
    plan = planned(kept)
    before = content(tmp_path / "out")
    kinds = {name.split("/")[-2] for name in before}
    assert kinds == {"plan", "copy", "sources", "splits", "left_out", "digests"}
    for name in before:
        victim = tmp_path / "out" / name
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 4
        victim.write_bytes(data)
        if "splits" in name or "left_out" in name:
            with pytest.raises(IncompleteError, match=r"is not what was written.*Run the recipe again"):
                load_plan(made.store)
        else:
            assert load_plan(made.store) == plan
        assert planned(kept) == plan
        Digests.load(made.store).save(made.store)
        assert content(tmp_path / "out") == before


def test_what_was_added_to_the_folder_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    fill(tmp_path, a=60)
    made = workspace(tmp_path)
    early = make_plan(made)
    fill(tmp_path, b=60)
    planned(workspace(tmp_path, "b*"))
    with pytest.raises(UserError, match="another run has added sources"):
        save_plan(made.store, early, load_sources(made.store))
    assert load_sources(made.store).column("path").to_pylist() == ["b.jsonl"]


def test_a_plan_of_another_version_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, a=60)
    made = workspace(tmp_path)
    made.store.write_json("plan/plan.json", {"sources": [], "splits": []})
    with pytest.raises(UserError, match="use a new --out folder"):
        make_plan(made)


def test_a_folder_that_moved_with_its_sources_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    fill(tmp_path / "one", a=60, b=60)
    before = planned(workspace(tmp_path / "one"))
    read_all(workspace(tmp_path / "one"), before)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert planned(workspace(tmp_path / "two")) == before


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a/*.jsonl", ["a/x.jsonl"]),
        ("a/x.jsonl", ["a/x.jsonl"]),
        ("*.jsonl", ["b.jsonl"]),
        ("**/*.jsonl", ["a/c/z.jsonl", "a/x.jsonl", "b.jsonl"]),
        ("a/**/[xz].jsonl", ["a/c/z.jsonl", "a/x.jsonl"]),
        ("?/*/?.jsonl", ["a/c/z.jsonl"]),
    ],
)
@pytest.mark.parametrize("slashes", ["//", "///"])
def test_globs_mean_the_same_on_another_file_system(
    tmp_path: Path, pattern: str, expected: list[str], slashes: str
) -> None:
    folder = f"headrace-{uuid.uuid4().hex}"
    for name in ("a/x.jsonl", "a/y.txt", "b.jsonl", "a/c/z.jsonl"):
        Store(f"memory:{slashes}{folder}").write_bytes(name, name.encode())
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    plan = make_plan(workspace(tmp_path, f"memory:{slashes}{folder}/{pattern}", split_bytes=20))
    assert list(chain(*paths(plan))) == [f"memory:{slashes}{folder}/{name}" for name in expected]
    local = make_plan(workspace(tmp_path, pattern, split_bytes=20))
    assert list(chain(*paths(local))) == expected
    assert plan.splits.names == local.splits.names
    for one, other in zip(plan.splits, local.splits, strict=True):
        assert [(s.size, s.checksum) for s in one.sources] == [(s.size, s.checksum) for s in other.sources]
        assert all(probe_checksum(s.path, s.size) == s.checksum for s in one.sources)


@pytest.mark.integration
def test_a_million_sources_would_take_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def finding(*_: Any) -> Finds:
        glances = np.full((count, 4), 7, np.int64)
        return Finds([f"{number:07d}.jsonl" for number in range(count)], np.zeros(count, np.int32), glances, {})

    monkeypatch.setattr("pipelines.planning.discover.discover", finding)
    monkeypatch.setattr(
        "pipelines.planning.reconcile.probe_checksum", lambda path, size: f"{crc32(path.encode()):032x}"
    )
    took: dict[int, float] = {}
    for count in (10_000, 100_000):
        made = workspace(tmp_path / str(count), split_bytes=70)
        started = time.process_time()
        plan = planned(made)
        assert load_plan(made.store).splits[-1].sources[-1].path == f"{count - 1:07d}.jsonl"
        took[count] = time.process_time() - started
        assert len(plan.splits) == count / 10
    # Ten times the rows: quadratic work would take a hundred times as long.
    assert took[100_000] < 40 * took[10_000]
